"""From views to HTML: how pages write keys, numbers and moments, the geometry of charts, and the templates.

Everything is escaped. Charts are numbers for SVG, because a strict content policy forbids styles in a page.
"""

import datetime as dt
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastapi import Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from skewless.bounds import NEAR
from skewless.documents.quality import STATES
from skewless.documents.stage_report import LONGEST_HEAD_KEY
from skewless.errors import counted
from skewless.routing.hashing import decode_columns
from skewless_airflow.web.security import REFRESHING_POLICY, STRICT_POLICY
from skewless_airflow.web.views.stage_view import StageView

#: A longer key is cut on a page; the JSON API has it whole.
LONGEST_KEY = 120
_LONGEST_SENTENCE = 2000
_NOTHING = "\N{EN DASH}"


def shown_key(key: str) -> str:
    """A key with its odd characters and blanks visible, cut where it is too long; not yet escaped for HTML.

    >>> shown_key("a word"), shown_key(""), shown_key(" b  c ")
    ('a word', "''", '␣b␣␣c␣')
    """
    cut = key if len(key) <= LONGEST_KEY else f"{key[:LONGEST_KEY]}\N{HORIZONTAL ELLIPSIS}"
    cut = re.sub("^ +| {2,}| +$", lambda blanks: "\N{OPEN BOX}" * len(blanks[0]), cut)
    return cut if cut.isprintable() and cut else repr(cut)


def key(text: str, several: bool = False) -> Markup:
    """A key in HTML, or one of several columns; what is written from right to left does not turn what is beside it."""
    return Markup(", ").join(Markup("<bdi>{}</bdi>").format(one) for one in _shown_columns(text, several))


def _shown_columns(text: str, several: bool) -> list[str]:
    columns = decode_columns(text) if several else None
    return [shown_key(text)] if columns is None else ["null" if one is None else shown_key(one) for one in columns]


def words(sentence: str) -> str:
    """A sentence on one line, cut where it is too long."""
    cut = sentence if len(sentence) <= _LONGEST_SENTENCE else f"{sentence[:_LONGEST_SENTENCE]}…"
    return "".join(sign if sign.isprintable() else " " for sign in cut)


def rows(number: float | None) -> str:
    """A number of rows; a whole one keeps all of its digits."""
    return _NOTHING if number is None else f"{number:,}" if isinstance(number, int) else f"{number:,.0f}"


def ratio(number: float | None) -> str:
    """A ratio, to three decimals."""
    return _NOTHING if number is None else f"{number:,.3f}"


def percent(number: float | None) -> str:
    """A fraction as a percentage."""
    return _NOTHING if number is None else f"{number:.2%}" if abs(number) < 0.1 else f"{number:.1%}"


def above(gap: float | None) -> str:
    """How far a longest task was above the best possible."""
    if gap is None:
        return "not measured"
    found = f"{100 * gap:.0f}" if gap >= 0.02 else f"{100 * gap:.1f}"
    return "the best possible" if float(found) == 0 else f"{found} % above the best possible"


def duration(seconds: float | None) -> str:
    """Seconds as people write them, from tenths of a second to hours."""
    if seconds is None:
        return _NOTHING
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"


def day(part: str, today: dt.date | None = None) -> str:
    """A part by its day, with its year unless that is this year; what is no part stays as it is."""
    date, comma, hour = part.partition(",")
    try:
        found = dt.date.fromisoformat(date)
    except ValueError:
        return part
    this_year = (today or dt.datetime.now(dt.UTC).date()).year
    return f"{found:%a} {found.day} {found:%b}{'' if found.year == this_year else f' {found.year}'}{comma}{hour}"


def date(part: str) -> str:
    """The same without the name of the day, for axes."""
    found = day(part)
    return part if found == part else found.partition(" ")[2]


def clock(when: dt.datetime | None) -> str:
    """A moment in UTC by its day and its time, for pages that say so."""
    if when is None:
        return _NOTHING
    utc = when.astimezone(dt.UTC)
    return f"{day(f'{utc:%Y-%m-%d}')} {utc:%H:%M}"


def waves(span: tuple[int, int]) -> str:
    """The waves of a stage, ``first <= wave < end``."""
    first, end = span
    if end <= first:
        return "no wave: the whole input is admitted already"
    return f"wave {first}" if end == first + 1 else f"waves {first} to {end - 1}"


def unit(value: float | None, kind: str) -> str:
    """A figure in its unit: rows, ratio, percent or seconds."""
    return {"rows": rows, "ratio": ratio, "percent": percent, "seconds": duration}[kind](value)


def measured(value: float | None, kind: str) -> str:
    """A measured figure, or "not measured": a dash would look like zero."""
    return "not measured" if value is None else unit(value, kind)


#: Units of a chart's height; its width follows from the bars.
HEIGHT = 100.0
_STEP = 10.0
_BAR = 8.0
#: A strip is so many units wide.
_STRIP = 1000.0
#: A chart has room for at least so many bars: two bars should not be as wide as a page.
_FEWEST_LOADS, _FEWEST_RUNS = 6, 12
#: How many colours the style sheet has.
_COLOURS = 8


@dataclass(frozen=True)
class Rect:
    """One bar, or a part of it, with its tooltip."""

    x: float
    y: float
    width: float
    height: float
    kind: str
    title: str = ""


@dataclass(frozen=True)
class Chart:
    """Bars side by side, and perhaps a line across them, ``line`` units from the top; ``top`` is the value up there."""

    width: float
    rects: tuple[Rect, ...]
    line: float | None = None
    top: float = 0.0


def load_chart(stage: StageView, most: int) -> Chart:
    """Processed rows below, backlog on top of them, one bar for each load that the stage waits for.

    The line is the fair share of the rows processed: as far above it as the highest of the lower parts is the stage's
    verdict.
    """
    tasks, even = stage.side_by_side[:most], stage.even_share
    top = max([even, *(float(task.queued) for task in tasks)]) or 1.0
    rects = []
    for place, task in enumerate(tasks):
        done, left = HEIGHT * task.processed / top, HEIGHT * task.backlog / top
        title = f"{task.task}: {task.processed:,} rows processed, {task.backlog:,} left over"
        x = place * _STEP + 1
        rects.append(Rect(x, round(HEIGHT - done, 2), _BAR, round(done, 2), "done", title))
        if task.backlog:
            rects.append(Rect(x, round(HEIGHT - done - left, 2), _BAR, round(left, 2), "left", title))
    line = round(HEIGHT - HEIGHT * even / top, 2) if even else None
    return Chart(max(_FEWEST_LOADS, len(tasks)) * _STEP, tuple(rects), line, top)


def key_strip(stage: StageView, several: bool = False) -> Chart:
    """All rows seen so far as one strip: the hottest keys one by one, then all other keys together."""
    first = stage.hottest[:_COLOURS]
    names = (", ".join(_shown_columns(hot.key, several)) for hot in first)
    parts = [(f"c{place}", name, hot.seen) for place, (name, hot) in enumerate(zip(names, first, strict=True))]
    others = stage.named_rows - sum(hot.seen for hot in first)
    light = stage.seen - stage.named_rows - stage.seen_null
    parts.append(("others", f"{stage.named_keys - len(first):,} other head keys", others))
    parts.append(("rest", "all keys that are not named", light))
    parts.append(("null", "rows without a key", stage.seen_null))
    seen, rects, x = max(1, stage.seen), [], 0.0
    for kind, who, rows in parts:
        if rows > 0:
            width = _STRIP / seen * rows
            title = f"{who}: {rows:,} rows, {rows / seen:.1%}"
            rects.append(Rect(round(x, 2), 0, round(width, 2), 20, kind, title))
            x += width
    return Chart(_STRIP, tuple(rects))


def spark_bars(
    values: Sequence[float | None], titles: Sequence[str], kinds: Sequence[str], least: float = 0.0
) -> Chart:  # fmt: skip
    """One bar for each value, from zero to ``least`` or more, the last at the right; nothing where there is none."""
    top = max([least, *(value for value in values if value is not None)]) or 1.0
    places = max(_FEWEST_RUNS, len(values))
    rects = []
    for place, (value, title, kind) in enumerate(zip(values, titles, kinds, strict=True), places - len(values)):
        if value is not None:
            high = round(max(2.0, HEIGHT * value / top), 2)
            rects.append(Rect(place * _STEP + 1, round(HEIGHT - high, 2), _BAR, high, kind, title))
    return Chart(places * _STEP, tuple(rects), top=top)


_HERE = Path(__file__).parent
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
) -> HTMLResponse:
    """Render a page, with links relative to a request.

    Args:
        heading: what tells its tab in a browser from others, before what kind of page it is.
        refresh: whether it asks for itself again while it is looked at, ``every`` so many seconds.
    """
    frame = {"root": _way_up(request), "heading": heading, "refresh": refresh, "every": every}
    html = _ENVIRONMENT.get_template(template).render(**frame, **values)
    policy = REFRESHING_POLICY if refresh else STRICT_POLICY
    return HTMLResponse(html, status_code, {"Content-Security-Policy": policy})


def _way_up(request: Request) -> str:
    """The relative address of the app's root, as the browser sees it: it counts slashes before they are decoded."""
    scope = request.scope
    path, mount = scope["path"], scope.get("root_path", "")
    here = path.removeprefix(mount) if mount else path
    before = path[: len(path) - len(here)].count("/")
    raw = (scope.get("raw_path") or path.encode()).partition(b"?")[0]
    return "../" * max(0, raw.count(b"/") - before - 1) or "./"


_ENVIRONMENT = Environment(
    loader=FileSystemLoader(_HERE / "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_ENVIRONMENT.filters.update(
    key=key, words=words, rows=rows, ratio=ratio, percent=percent, seconds=duration, waves=waves,
    unit=unit, measured=measured, day=day, counted=counted, date=date, clock=clock, above=above,
)  # fmt: skip
_ENVIRONMENT.globals.update(
    states=STATES, key_strip=key_strip, near=NEAR, load_chart=load_chart, spark_bars=spark_bars,
    chart_height=HEIGHT, longest_head_key=LONGEST_HEAD_KEY,
)  # fmt: skip
