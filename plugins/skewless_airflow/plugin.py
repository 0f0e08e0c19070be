"""The plugin that Airflow loads: by the package's entry point, or in a checkout by ``plugins/skewless_plugin.py``.

Every process of Airflow loads plugins, but only the API server serves pages. So nothing here imports FastAPI or
Airflow's own API: the app is built at the first request.
"""

from functools import cached_property
from typing import Any

from airflow.plugins_manager import AirflowPlugin

from skewless_airflow.partitions import PartMapper, PartTimetable

PREFIX = "skewless"


class SkewlessWeb:
    """An ASGI app that builds the real one at the first request."""

    @cached_property
    def _app(self) -> Any:
        from skewless_airflow.web.app import create_app  # noqa: PLC0415  # see above: only in the API server

        return create_app()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one request."""
        await self._app(scope, receive, send)


def external_views() -> list[dict[str, Any]]:
    """Tabs and navigation, as ``AirflowPlugin.external_views`` takes them.

    Before 3.4, which has ``applies_to``, Airflow shows a tab on every DAG there is. So there is one for DAGs and one
    for runs, from which our other pages are reached, and none for tasks: a plan task has a link to its decision.

    The addresses have no leading slash: Airflow may be served below a path of its own.
    """
    dag = f"{PREFIX}/dags/{{DAG_ID}}"
    icons = {"icon": f"{PREFIX}/static/icon.svg", "icon_dark_mode": f"{PREFIX}/static/icon-dark.svg"}
    views = (
        ("Skewless", f"{PREFIX}/", "nav", "skewless"),
        ("Skew over time", f"{dag}/over-time", "dag", "skew-over-time"),
        ("Skew", f"{dag}/runs/{{RUN_ID}}/skew", "dag_run", "skew"),
    )
    top = {"nav_top_level": True}  # not in the menu that Airflow makes for several plugins
    return [
        {
            "name": name,
            "href": href,
            "destination": place,
            "url_route": route,
            **icons,
            **(top if place == "nav" else {"applies_to": {"dag.tags.name": ["skewless"]}}),
        }
        for name, href, place, route in views
    ]


class SkewlessPlugin(AirflowPlugin):
    """Registers the pages of Skewless, and the timetable and the partition mapper of its jobs, with Airflow."""

    name = "skewless"
    fastapi_apps = [{"app": SkewlessWeb(), "url_prefix": f"/{PREFIX}", "name": "Skewless"}]  # noqa: RUF012  # as Airflow declares it
    external_views = external_views()
    # Airflow stores both by name, and reads only the classes that it knows.
    timetables = [PartTimetable]  # noqa: RUF012
    partition_mappers = [PartMapper]  # noqa: RUF012
