"""The plugin that Airflow loads: by the package's entry point, or in a checkout by ``plugins/skewless_plugin.py``."""

from __future__ import annotations

from airflow.plugins_manager import AirflowPlugin

from skewless_airflow import partitions
from skewless_airflow.dags import timetable
from skewless_airflow.web import registration


class SkewlessPlugin(AirflowPlugin):
    """Registers the pages of Skewless, and the timetable and the partition mapper of its jobs, with Airflow."""

    name = "skewless"
    fastapi_apps = registration.fastapi_apps()
    external_views = registration.external_views()
    timetables = timetable.registered()
    partition_mappers = partitions.registered()
