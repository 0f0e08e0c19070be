"""From views to pages: one environment, which escapes everything."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

from fastapi import Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from skewless.bounds.certificate import NEAR
from skewless_airflow.web.rendering.charts import HEIGHT, key_strip, load_chart, ring_strip, spark_bars
from skewless_airflow.web.rendering.expectation_words import expectation_words, observed_words, required_words
from skewless_airflow.web.rendering.key_text import shown_key
from skewless_airflow.web.security import REFRESHING_POLICY, STRICT_POLICY, harden

_HERE = Path(__file__).parents[1]
STATIC = _HERE / "static"
#: A longer sentence is cut on a page; the JSON API has it whole.
_LONGEST_SENTENCE = 2000
#: Where there is no number.
_NOTHING = "\N{EN DASH}"


def page(request: Request, template: str, *, status_code: int = 200, refresh: bool = False, **values: Any) -> Any:
    """Render a page.

    Args:
        request: what links are relative to.
        template: its file.
        status_code: of the answer.
        refresh: whether the page asks for itself again while it is looked at.
        values: what the template shows.
    """
    html = _ENVIRONMENT.get_template(template).render(root=_way_up(request), refresh=refresh, **values)
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


def _words(sentence: str) -> str:
    cut = sentence if len(sentence) <= _LONGEST_SENTENCE else f"{sentence[:_LONGEST_SENTENCE]}…"
    return "".join(sign if sign.isprintable() else " " for sign in cut)


def _rows(number: float | None) -> str:
    return _NOTHING if number is None else f"{number:,.0f}"


def _ratio(number: float | None) -> str:
    return _NOTHING if number is None else f"{number:,.3f}"


def _percent(number: float | None) -> str:
    return _NOTHING if number is None else f"{number:.2%}" if abs(number) < 0.1 else f"{number:.1%}"


def _seconds(seconds: float | None) -> str:
    if seconds is None:
        return _NOTHING
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"


def _moment(moment: dt.datetime | None) -> str:
    return _NOTHING if moment is None else f"{moment.astimezone(dt.UTC):%Y-%m-%d %H:%M} UTC"


def _waves(waves: tuple[int, int]) -> str:
    first, end = waves
    if end <= first:
        return "no wave, the input is used up"
    return f"wave {first}" if end == first + 1 else f"waves {first} to {end - 1}"


def _unit(value: float | None, unit: str) -> str:
    return {"rows": _rows, "ratio": _ratio, "percent": _percent, "seconds": _seconds}[unit](value)


def _measured(value: float | None, unit: str) -> str:
    """A figure of what tasks did: without one, nobody counted, and no dash may look like nothing to tell."""
    return "not measured" if value is None else _unit(value, unit)


def _breakable(name: str) -> Markup:
    """A long name that may be broken at its underscores."""
    return Markup("_<wbr>").join(escape(part) for part in name.split("_"))


def _environment() -> Environment:
    found = Environment(
        loader=FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters.update(
        key=shown_key, words=_words, rows=_rows, ratio=_ratio, percent=_percent, seconds=_seconds, moment=_moment,
        waves=_waves, unit=_unit, measured=_measured, expectation=expectation_words, breakable=_breakable,
        required=required_words, observed=observed_words,
    )  # fmt: skip
    found.globals.update(
        key_strip=key_strip, near=NEAR,
        load_chart=load_chart, ring_strip=ring_strip, spark_bars=spark_bars, chart_height=HEIGHT,
    )  # fmt: skip
    return found


_ENVIRONMENT = _environment()
