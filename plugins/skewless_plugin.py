"""The only file of this folder that Airflow scans; everything else is an ordinary package."""

from __future__ import annotations

from typing import Any, ClassVar

from airflow.plugins_manager import AirflowPlugin

from skewless_airflow.web.registration import external_views, fastapi_apps


class SkewlessPlugin(AirflowPlugin):
    """Registers the pages of Skewless with Airflow."""

    name = "skewless"
    fastapi_apps: ClassVar[list[dict[str, Any]]] = fastapi_apps()
    external_views: ClassVar[list[dict[str, Any]]] = external_views()
