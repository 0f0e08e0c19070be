"""The plugin that Airflow loads: by the package's entry point, or in a checkout by ``plugins/skewless_plugin.py``."""

from __future__ import annotations

from airflow.plugins_manager import AirflowPlugin

from skewless_airflow.partitions import PartMapper, PartTimetable
from skewless_airflow.web import registration


class SkewlessPlugin(AirflowPlugin):
    """Registers the pages of Skewless, and the timetable and the partition mapper of its jobs, with Airflow."""

    name = "skewless"
    fastapi_apps = registration.fastapi_apps()
    external_views = registration.external_views()
    # Airflow stores both by name, and reads only the classes that it knows.
    timetables = [PartTimetable]  # noqa: RUF012  # as Airflow declares it
    partition_mappers = [PartMapper]  # noqa: RUF012
