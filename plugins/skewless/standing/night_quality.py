"""What is measured of a run with a window: how new its files are, how large its own part is, and what came late."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from statistics import median
from types import MappingProxyType

from skewless.documents.ledger import PartLine
from skewless.documents.quality import Freshness, LateRows, Volume, WindowQuality
from skewless.documents.window import JobWindow, NewestRow, SeenFile
from skewless.errors import DocumentError, RunDirectoryError
from skewless.spec.part import Part
from skewless.standing.store import StatesStore

#: A band is made of at least so many parts, and of at most so many.
FEWEST, MOST = 3, 8
#: Half of the values of a normal distribution lie within so many median distances of a standard deviation.
_DEVIATION = 1.4826
_BAND = 3


def window_quality(
    window: JobWindow,
    part: Part,
    lines: Sequence[PartLine],
    store: StatesStore,
    newest: Mapping[str, NewestRow] = MappingProxyType({}),
) -> WindowQuality:
    """What is measured of a run whose result is merged; ``part`` is its own part, ``lines`` the rows of all."""
    own = next((line.rows for line in lines if line.part == part.name), None)
    return WindowQuality(
        freshness=tuple(freshness(window, newest)),
        volume=None if own is None else volume(part, own, _earlier(part, store)),
        late=tuple(late_rows(window)),
    )


def freshness(window: JobWindow, newest: Mapping[str, NewestRow] = MappingProxyType({})) -> Iterator[Freshness]:
    """When the newest file of each part was modified, where its file system says so; and its newest row."""
    for part in window.parts:
        moments = [_modified(file) for file in part.files]
        known = [moment for moment in moments if moment is not None]
        file = max(known) if known and len(known) == len(moments) else None
        row = newest.get(part.name)
        if file or (row and row.at):
            yield Freshness(part=part.name, newest=file, row=row)


def _modified(file: SeenFile) -> dt.datetime | None:
    """When a file was modified, by the version that a local file system gives it: ``stat:NANOSECONDS:...``."""
    kind, _, rest = file.version.partition(":")
    nanoseconds = rest.partition(":")[0]
    if kind != "stat" or not nanoseconds.isdigit():
        return None
    return dt.datetime.fromtimestamp(int(nanoseconds) // 10**9, dt.UTC)


def volume(part: Part, rows: int, earlier: Mapping[str, int]) -> Volume | None:
    """The rows of a part beside those of earlier ones, see ``Volume``; None if they are too few."""
    if len(earlier) < FEWEST:
        return None
    middle = median(earlier.values())
    distance = median(abs(count - middle) for count in earlier.values())
    half = _BAND * max(_DEVIATION * distance, math.sqrt(middle))
    return Volume(
        part=part.name, rows=rows, compared=dict(earlier), median=middle, low=middle - half, high=middle + half
    )


def _earlier(part: Part, store: StatesStore) -> dict[str, int]:
    """The rows of the parts of the same weekday and hour before a part, as far as states of them are kept."""
    kept, found = set(store.parts()), {}
    for back in range(1, MOST + 1):
        name = part._replace(date=part.date - dt.timedelta(weeks=back)).name
        if name in kept:
            # A part that cannot be read counts for nothing.
            with suppress(DocumentError, RunDirectoryError, IndexError):
                found[name] = store.version(name, store.numbers(name)[-1]).rows
    return found


def late_rows(window: JobWindow) -> Iterator[LateRows]:
    """Rows that came late in older parts, where they were counted."""
    delays = window.delays()
    for part in window.parts[:-1]:
        for rows, ignored in ((part.late_rows, False), (part.ignored_rows, True)):
            if rows:
                yield LateRows(part=part.name, delay=delays[part.name], rows=rows, ignored=ignored)
