"""The geometry of bars and calendars, as numbers for SVG: a strict content policy forbids styles in a page."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

from skewless_airflow.web.rendering.words import shown_key
from skewless_airflow.web.views.decision_view import RingView
from skewless_airflow.web.views.parts_over_time import MISSING, PartMark
from skewless_airflow.web.views.stage_view import StageView
from skewless_airflow.web.views.window_view import PartView, WindowView

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
#: From one cell to the next, and the side of one.
_CELL, _SIDE = 14, 12
#: Room for the names of rows at the left, and of columns at the top.
_LEFT, _TOP = 30, 14
_MONDAY_TO_SUNDAY = ("Mon", "", "Wed", "", "Fri", "", "Sun")
#: A cell of a few is drawn larger, so that a month is not a stamp.
_FEW_COLUMNS = 16
#: Parts before these columns are not drawn: ten years of weeks.
_MOST_COLUMNS = 530
#: The colour of each word, by the classes of the style sheet.
_DAY_COLOURS = {
    "new": "good",
    "added to": "done",
    "reduced anew": "left",
    "late files left out": "others",
    "reused": "none",
    MISSING: "missing",
}


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


class Day(NamedTuple):
    """A part as the calendar has it: ``kind`` is the class of its colour, ``title`` its tooltip; late, it has a dot."""

    part: str
    kind: str
    late: bool
    title: str
    x: int = 0
    y: int = 0


@dataclass(frozen=True)
class Label:
    """The name of a row or of a column."""

    x: int
    y: int
    text: str


@dataclass(frozen=True)
class Calendar:
    """Cells with names at two sides. A unit is drawn ``scale`` pixels large; ``older`` parts are not drawn.

    ``lines`` say the same in words: a line for each part, but one for all those together that were merely reused.
    """

    width: int
    height: int
    cells: tuple[Day, ...]
    labels: tuple[Label, ...]
    scale: float
    lines: tuple[str, ...]
    older: int = 0
    side: int = _SIDE


def window_calendar(window: WindowView) -> Calendar:
    """The parts of a run's window."""
    days = [Day(part.name, _DAY_COLOURS[part.words], part.late, _part_words(part)) for part in window.parts]
    days += [Day(name, _DAY_COLOURS[MISSING], late=False, title=f"{name}: no files") for name in window.missing]
    return _calendar(days)


def history_calendar(marks: Iterable[PartMark]) -> Calendar:
    """The parts of a job, each as it was last changed."""
    return _calendar([Day(one.part, _DAY_COLOURS[one.words], one.late, _mark_words(one)) for one in marks])


def _part_words(part: PartView) -> str:
    late = f", {part.delay:,} late" if part.late else ""
    read = "" if part.new_rows is None else f", {part.new_rows:,} rows read"
    return f"{part.name}: {part.words}{late}{read}, {part.kept_rows:,} rows kept"


def _mark_words(mark: PartMark) -> str:
    if mark.words == MISSING:
        return f"{mark.part}: no files when {mark.by} was computed"
    if not mark.by:
        return f"{mark.part}: reused by all runs that are shown"
    late = f"; {mark.rows:,} rows came after it was first computed" if mark.late else ""
    return f"{mark.part}: {mark.words} when {mark.by} was computed{late}"


def _calendar(days: Sequence[Day]) -> Calendar:
    hours = sorted({day.part[11:] for day in days} - {""})
    dates = {day.part: dt.date.fromisoformat(day.part[:10]) for day in days}
    oldest = max(dates.values(), default=dt.date(1970, 1, 1)) - dt.timedelta(_MOST_COLUMNS * (1 if hours else 7))
    drawn = [day for day in days if dates[day.part] > oldest]
    first = min((dates[day.part] for day in drawn), default=dt.date(1970, 1, 1))
    begin = first if hours else first - dt.timedelta(days=first.weekday())
    cells, columns = [], 1
    for day in drawn:
        past = (dates[day.part] - begin).days
        column, row = (past, hours.index(day.part[11:])) if hours else divmod(past, 7)
        columns = max(columns, column + 1)
        cells.append(day._replace(x=_LEFT + column * _CELL, y=_TOP + row * _CELL))
    rows = hours or _MONDAY_TO_SUNDAY
    labels = []
    for at, text in enumerate(rows):
        if text and (not hours or at % 6 == 0):
            labels.append(Label(0, _TOP + at * _CELL + _SIDE - 2, text))
    labels += _column_labels(begin, columns, step=1 if hours else 7)
    scale = 1.6 if columns <= _FEW_COLUMNS else 1.0
    width, height = _LEFT + columns * _CELL + _LEFT, _TOP + len(rows) * _CELL
    lines = _lines(drawn)
    return Calendar(width, height, tuple(cells), tuple(labels), scale, lines, older=len(days) - len(drawn))


def _lines(days: Sequence[Day]) -> tuple[str, ...]:
    found: list[str] = []
    for reused, some in groupby(sorted(days), lambda one: one.kind == _DAY_COLOURS["reused"] and not one.late):
        several = list(some)
        if reused and len(several) > 1:
            found.append(f"{several[0].part} to {several[-1].part}: {len(several)} parts reused")
        else:
            found += [one.title for one in several]
    return tuple(found)


def _column_labels(begin: dt.date, columns: int, step: int) -> list[Label]:
    """Names of columns: months with the first year and each new one; for hours every fourth day."""
    labels, free, before = list[Label](), 0, 0
    for column in range(columns):
        day = begin + dt.timedelta(days=step * (column + 1) - 1)  # the last one of the column
        if column < free or (step > 1 and day.month == before):
            continue
        with_year = not labels or day.month == 1
        text = f"{day:%d %b}" if step == 1 else f"{day:%b %Y}" if with_year else f"{day:%b}"
        labels.append(Label(_LEFT + column * _CELL, _TOP - 4, text))
        free, before = column + 4, day.month
    return labels
