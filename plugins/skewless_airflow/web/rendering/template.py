"""From views to HTML: one environment of templates, which escapes everything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fastapi import Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from skewless.bounds import NEAR
from skewless_airflow.web.rendering import words
from skewless_airflow.web.rendering.charts import HEIGHT, key_strip, load_chart, ring_strip, spark_bars
from skewless_airflow.web.security import REFRESHING_POLICY, STRICT_POLICY, harden

_HERE = Path(__file__).parents[1]
STATIC = _HERE / "static"


def page(
    request: Request,
    template: str,
    *,
    heading: str = "",
    status_code: int = 200,
    refresh: bool = False,
    every: int = 3,
    **values: Any,
) -> Any:
    """Render a page, with links relative to a request.

    Args:
        heading: what tells its tab in a browser from others, before what kind of page it is.
        refresh: whether it asks for itself again while it is looked at, ``every`` so many seconds.
    """
    frame = {"root": _way_up(request), "heading": heading, "refresh": refresh, "every": every}
    html = _ENVIRONMENT.get_template(template).render(**frame, **values)
    policy = REFRESHING_POLICY if refresh else STRICT_POLICY
    return harden(HTMLResponse(html, status_code, {"Content-Security-Policy": policy}))


def _way_up(request: Request) -> str:
    """The relative address of the app's root, as the browser sees it: it counts slashes before they are decoded."""
    scope = request.scope
    path, mount = scope["path"], scope.get("root_path", "")
    here = path.removeprefix(mount) if mount else path
    before = path[: len(path) - len(here)].count("/")
    raw = (scope.get("raw_path") or path.encode()).partition(b"?")[0]
    return "../" * max(0, raw.count(b"/") - before - 1) or "./"


def _environment() -> Environment:
    found = Environment(
        loader=FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters.update(
        key=words.shown_key, words=words.words, rows=words.rows, ratio=words.ratio, percent=words.percent,
        seconds=words.duration, moment=words.moment, waves=words.waves, unit=words.unit, measured=words.measured,
        breakable=words.breakable, day=words.day,
        date=words.date, clock=words.clock, above=words.above,
    )  # fmt: skip
    found.globals.update(
        key_strip=key_strip, near=NEAR, load_chart=load_chart, ring_strip=ring_strip, spark_bars=spark_bars,
        chart_height=HEIGHT,
    )  # fmt: skip
    return found


_ENVIRONMENT = _environment()
