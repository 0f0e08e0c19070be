"""The only file of this folder that Airflow scans; everything else is an ordinary package."""

from __future__ import annotations

from airflow.plugins_manager import AirflowPlugin


class SkewlessPlugin(AirflowPlugin):
    """Registers Skewless with Airflow."""

    name = "skewless"
