"""Parts as a calendar: a column for each week of days, or for each day of hours. All sizes are units of an SVG."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from skewless_airflow.web.views.parts_over_time import MISSING, PartMark
from skewless_airflow.web.views.window import PartView, WindowView

#: From one cell to the next, and the side of one.
_STEP, _SIDE = 14, 12
#: Room for the names of rows at the left, and of columns at the top.
_LEFT, _TOP = 30, 14
_MONDAY_TO_SUNDAY = ("Mon", "", "Wed", "", "Fri", "", "Sun")
#: A cell of a few is drawn larger, so that a month is not a stamp.
_FEW_COLUMNS = 16
#: Parts before these columns are not drawn: ten years of weeks.
_MOST_COLUMNS = 530
#: The colour of each word, by the classes of the style sheet.
COLOURS = {
    "new": "good",
    "added to": "done",
    "reduced anew": "left",
    "late files left out": "others",
    "reused": "none",
    MISSING: "missing",
}


@dataclass(frozen=True)
class Day:
    """A part as the calendar has it.

    Attributes:
        part: its name.
        kind: the class of its colour.
        late: whether it has a dot.
        title: its tooltip.
    """

    part: str
    kind: str
    late: bool
    title: str


@dataclass(frozen=True)
class Cell:
    """A part at its place."""

    x: int
    y: int
    kind: str
    late: bool
    title: str


@dataclass(frozen=True)
class Label:
    """The name of a row or of a column."""

    x: int
    y: int
    text: str


@dataclass(frozen=True)
class Calendar:
    """Cells with names at two sides. A unit is drawn ``scale`` pixels large; ``older`` parts are not drawn."""

    width: int
    height: int
    cells: tuple[Cell, ...]
    labels: tuple[Label, ...]
    scale: float
    older: int = 0
    side: int = _SIDE


def window_calendar(window: WindowView) -> Calendar:
    """The parts of a run's window."""
    days = [Day(part.name, COLOURS[part.words], part.late, _part_words(part)) for part in window.parts]
    days += [Day(name, COLOURS[MISSING], late=False, title=f"{name}: no files") for name in window.missing]
    return _calendar(days)


def history_calendar(marks: Iterable[PartMark]) -> Calendar:
    """The parts of a job, each as it was last changed."""
    return _calendar([Day(one.part, COLOURS[one.words], one.late, _mark_words(one)) for one in marks])


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
        cells.append(Cell(_LEFT + column * _STEP, _TOP + row * _STEP, day.kind, day.late, day.title))
    rows = hours or _MONDAY_TO_SUNDAY
    labels = [Label(0, _TOP + at * _STEP + _SIDE - 2, text) for at, text in enumerate(rows) if _named(at, text, hours)]
    labels += _column_labels(begin, columns, step=1 if hours else 7)
    scale = 1.6 if columns <= _FEW_COLUMNS else 1.0
    width, height = _LEFT + columns * _STEP + _LEFT, _TOP + len(rows) * _STEP
    return Calendar(width, height, tuple(cells), tuple(labels), scale, older=len(days) - len(drawn))


def _named(at: int, text: str, hours: Sequence[str]) -> bool:
    return bool(text) and (not hours or at % 6 == 0)


def _column_labels(begin: dt.date, columns: int, step: int) -> list[Label]:
    """Names of columns: months with the first year and each new one; for hours every fourth day."""
    labels, free, before = list[Label](), 0, 0
    for column in range(columns):
        day = begin + dt.timedelta(days=step * (column + 1) - 1)  # the last one of the column
        if column < free or (step > 1 and day.month == before):
            continue
        with_year = not labels or day.month == 1
        text = f"{day:%d %b}" if step == 1 else f"{day:%b %Y}" if with_year else f"{day:%b}"
        labels.append(Label(_LEFT + column * _STEP, _TOP - 4, text))
        free, before = column + 4, day.month
    return labels
