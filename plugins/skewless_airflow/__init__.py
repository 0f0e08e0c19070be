"""The Airflow side of Skewless: operators, DAGs and pages over the run directory.

A DAG of your own starts with ``from skewless_airflow import adaptive_aggregation``, the DAGs of a folder of specs with
``from skewless_airflow import catalog_dags``.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from skewless_airflow.dags import adaptive_aggregation, build_dag, catalog_dags
    from skewless_airflow.trigger_form import form_params

__all__ = ["adaptive_aggregation", "build_dag", "catalog_dags", "form_params"]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: the plugin's pages need no operators."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from skewless_airflow import dags  # noqa: PLC0415

    return getattr(dags, name)


_LINKS = "skewless_airflow.observability.links"


def get_provider_info() -> dict[str, Any]:
    """What ``airflow providers`` says of Skewless; the plugin has an entry point of its own."""
    return {
        "package-name": "skewless",
        "name": "Skewless",
        "description": "Nightly aggregations over badly skewed keys: staged Spark jobs, re-planned after every stage.",
        "extra-links": [
            f"{_LINKS}.{name}" for name in ("SkewReportLink", "DecisionLink", "QualityReportLink", "SparkUiLink")
        ],
    }
