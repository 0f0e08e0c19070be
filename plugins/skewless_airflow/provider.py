"""What ``airflow providers list`` says of Skewless. Airflow imports this early, so it imports nothing itself."""

from __future__ import annotations


def get_provider_info() -> dict[str, str]:
    """The fields that Airflow's schema of provider information requires; the plugin has an entry point of its own."""
    return {
        "package-name": "skewless",
        "name": "Skewless",
        "description": "Nightly aggregations over badly skewed keys: staged Spark jobs, re-planned after every stage.",
    }
