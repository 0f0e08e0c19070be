"""Registers the pages with Airflow: tabs, the navigation entry, and the mounted app.

Every process of Airflow loads plugins, but only the API server serves pages. So nothing here imports FastAPI or
Airflow's own API: the app is built at the first request.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

#: Where the app is mounted.
PREFIX = "/skewless"


class SkewlessWeb:
    """An ASGI app that builds the real one at the first request."""

    @cached_property
    def _app(self) -> Any:
        from skewless_airflow.web.app import create_app  # noqa: PLC0415  # see above: only in the API server

        return create_app()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one request."""
        await self._app(scope, receive, send)


def fastapi_apps() -> list[dict[str, Any]]:
    """The app, as ``AirflowPlugin.fastapi_apps`` takes it."""
    return [{"app": SkewlessWeb(), "url_prefix": PREFIX, "name": "Skewless"}]


def external_views() -> list[dict[str, Any]]:
    """Tabs and navigation, as ``AirflowPlugin.external_views`` takes them.

    Airflow shows a tab on every DAG there is, also on those that are none of ours. So there is one for DAGs and one for
    runs, from which our other pages are reached, and none for tasks: a plan task has a link to its decision.

    The addresses have no leading slash: Airflow may be served below a path of its own.
    """
    at = PREFIX.strip("/")
    run = f"{at}/dags/{{DAG_ID}}/runs/{{RUN_ID}}"
    icons = {"icon": f"{at}/static/icon.svg", "icon_dark_mode": f"{at}/static/icon-dark.svg"}
    return [
        {
            "name": "Skewless",
            "href": f"{at}/",
            "destination": "nav",
            "nav_top_level": True,  # not in the menu that Airflow makes for several plugins
            "url_route": "skewless",
            **icons,
        },
        {
            "name": "Skew over time",
            "href": f"{at}/dags/{{DAG_ID}}/over-time",
            "destination": "dag",
            "url_route": "skew-over-time",
            **icons,
        },
        {"name": "Skew", "href": f"{run}/skew", "destination": "dag_run", "url_route": "skew", **icons},
    ]
