"""The geometry of bars, as numbers for SVG: a strict content policy forbids styles in a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from skewless_airflow.web.rendering.words import shown_key
from skewless_airflow.web.views.decision import RingView
from skewless_airflow.web.views.stage import StageView, TaskView

#: Units of a chart's height; its width follows from the bars.
HEIGHT = 100.0
_STEP = 10.0
_BAR = 8.0
#: The ring's strip is so many units wide.
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
    """Bars side by side, and perhaps a line across them, ``line`` units from the top."""

    width: float
    rects: tuple[Rect, ...]
    line: float | None = None

    @property
    def places(self) -> int:
        """For how many bars there is room."""
        return round(self.width / _STEP)


def load_chart(tasks: Sequence[TaskView], fair: float, most: int) -> Chart:
    """Processed rows below, backlog on top of them, one bar for each task, and the fair share as a line."""
    tasks = tasks[:most]
    top = max([fair, *(float(task.queued) for task in tasks)]) or 1.0
    rects = []
    for place, task in enumerate(tasks):
        done, left = HEIGHT * task.processed / top, HEIGHT * task.backlog / top
        title = f"{task.task}: {task.processed:,} rows processed, {task.backlog:,} left over"
        x = place * _STEP + 1
        rects.append(Rect(x, _short(HEIGHT - done), _BAR, _short(done), "done", title))
        if task.backlog:
            rects.append(Rect(x, _short(HEIGHT - done - left), _BAR, _short(left), "left", title))
    return Chart(
        max(_FEWEST_LOADS, len(tasks)) * _STEP, tuple(rects), _short(HEIGHT - HEIGHT * fair / top) if fair else None
    )


def ring_strip(ring: RingView) -> Chart:
    """The ring as one strip: how much of it each reducer owns."""
    rects, x = [], 0.0
    for place, part in enumerate(ring.parts):
        who = f"reducer {part.reducer}" if part.reducer is not None else "all other reducers"
        kind = f"c{place % _COLOURS}" if part.reducer is not None else "rest"
        title = f"{who}: {part.share:.1%} of the ring, {part.tokens:,} tokens"
        rects.append(Rect(_short(x), 0, _short(_STRIP * part.share), 20, kind, title))
        x += _STRIP * part.share
    return Chart(_STRIP, tuple(rects))


def key_strip(stage: StageView) -> Chart:
    """All rows seen so far as one strip: the hottest keys one by one, then all other keys together."""
    first = stage.hottest[:_COLOURS]
    parts = [(f"c{place}", shown_key(hot.key), hot.seen) for place, hot in enumerate(first)]
    others = stage.named_rows - sum(hot.seen for hot in first)
    light = stage.seen - stage.named_rows - stage.seen_null
    parts.append(("others", f"{stage.named_keys - len(first):,} other head keys", others))
    parts.append(("rest", "all keys that are not named", light))
    parts.append(("null", "rows without a key", stage.seen_null))
    rects, x, scale = [], 0.0, _STRIP / max(1, stage.seen)
    for kind, who, rows in parts:
        if rows > 0:
            title = f"{who}: {rows:,} rows, {rows / max(1, stage.seen):.1%}"
            rects.append(Rect(_short(x), 0, _short(scale * rows), 20, kind, title))
            x += scale * rows
    return Chart(_STRIP, tuple(rects))


def spark_bars(values: Sequence[float | None], titles: Sequence[str], kinds: Sequence[str]) -> Chart:
    """One bar for each value, from zero, the last one at the right; nothing where there is none."""
    top = max([value for value in values if value is not None], default=0.0) or 1.0
    places = max(_FEWEST_RUNS, len(values))
    rects = []
    for place, (value, title, kind) in enumerate(zip(values, titles, kinds, strict=True), places - len(values)):
        if value is not None:
            high = _short(max(2.0, HEIGHT * value / top))
            rects.append(Rect(place * _STEP + 1, _short(HEIGHT - high), _BAR, high, kind, title))
    return Chart(places * _STEP, tuple(rects))


def _short(number: float) -> float:
    return round(number, 2)
