"""The geometry of bars, as numbers for SVG: a strict content policy forbids styles in a page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from skewless_airflow.web.rendering.words import shown_key
from skewless_airflow.web.views.decision_view import RingView
from skewless_airflow.web.views.stage_view import StageView

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
    """Bars side by side, and perhaps a line across them, ``line`` units from the top; ``top`` is the value up there."""

    width: float
    rects: tuple[Rect, ...]
    line: float | None = None
    top: float = 0.0

    @property
    def places(self) -> int:
        """For how many bars there is room."""
        return round(self.width / _STEP)


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
        rects.append(Rect(x, _short(HEIGHT - done), _BAR, _short(done), "done", title))
        if task.backlog:
            rects.append(Rect(x, _short(HEIGHT - done - left), _BAR, _short(left), "left", title))
    line = _short(HEIGHT - HEIGHT * even / top) if even else None
    return Chart(max(_FEWEST_LOADS, len(tasks)) * _STEP, tuple(rects), line, top)


def ring_strip(ring: RingView) -> Chart:
    """The ring as one strip: how much of it each reducer owns."""
    parts = []
    for place, part in enumerate(ring.parts):
        who = f"reducer {part.reducer}" if part.reducer is not None else "all other reducers"
        kind = f"c{place % _COLOURS}" if part.reducer is not None else "rest"
        title = f"{who}: {part.share:.1%} of the ring, {part.tokens:,} tokens"
        parts.append((kind, title, _STRIP * part.share))
    return _strip(parts)


def key_strip(stage: StageView) -> Chart:
    """All rows seen so far as one strip: the hottest keys one by one, then all other keys together."""
    first = stage.hottest[:_COLOURS]
    parts = [(f"c{place}", shown_key(hot.key), hot.seen) for place, hot in enumerate(first)]
    others = stage.named_rows - sum(hot.seen for hot in first)
    light = stage.seen - stage.named_rows - stage.seen_null
    parts.append(("others", f"{stage.named_keys - len(first):,} other head keys", others))
    parts.append(("rest", "all keys that are not named", light))
    parts.append(("null", "rows without a key", stage.seen_null))
    seen = max(1, stage.seen)
    return _strip(
        (kind, f"{who}: {rows:,} rows, {rows / seen:.1%}", _STRIP / seen * rows)
        for kind, who, rows in parts
        if rows > 0
    )


def _strip(parts: Iterable[tuple[str, str, float]]) -> Chart:
    """Parts side by side, each with its kind, its tooltip and its width."""
    rects, x = [], 0.0
    for kind, title, width in parts:
        rects.append(Rect(_short(x), 0, _short(width), 20, kind, title))
        x += width
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
    return Chart(places * _STEP, tuple(rects), top=top)


def _short(number: float) -> float:
    return round(number, 2)
