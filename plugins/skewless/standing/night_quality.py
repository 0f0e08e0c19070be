"""What is measured of a run with a window: how new its files are, and what came late."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator

from skewless.documents.quality import Freshness, LateRows, WindowQuality
from skewless.documents.window import JobWindow, SeenFile


def window_quality(window: JobWindow) -> WindowQuality:
    """What is measured of a run whose result is merged."""
    return WindowQuality(freshness=tuple(freshness(window)), late=tuple(late_rows(window)))


def freshness(window: JobWindow) -> Iterator[Freshness]:
    """When the newest file of each part was modified, where its file system says so."""
    for part in window.parts:
        moments = [_modified(file) for file in part.files]
        known = [moment for moment in moments if moment is not None]
        if known and len(known) == len(moments):
            yield Freshness(part=part.name, newest=max(known))


def _modified(file: SeenFile) -> dt.datetime | None:
    """When a file was modified, by the version that a local file system gives it: ``stat:NANOSECONDS:...``."""
    kind, _, rest = file.version.partition(":")
    nanoseconds = rest.partition(":")[0]
    if kind != "stat" or not nanoseconds.isdigit():
        return None
    return dt.datetime.fromtimestamp(int(nanoseconds) // 10**9, dt.UTC)


def late_rows(window: JobWindow) -> Iterator[LateRows]:
    """Rows that came late in older parts, where they were counted."""
    delays = window.delays()
    for part in window.parts[:-1]:
        for rows, ignored in ((part.late_rows, False), (part.ignored_rows, True)):
            if rows:
                yield LateRows(part=part.name, delay=delays[part.name], rows=rows, ignored=ignored)
