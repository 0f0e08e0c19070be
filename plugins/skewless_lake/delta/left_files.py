"""Files of runs that a Delta table does not name, and that nobody will publish."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa

from skewless.run.objects.location import open_location
from skewless_lake.commits import told
from skewless_lake.delta.tables import find_table, location_of
from skewless_lake.staged import OutputPart


def unnamed(target: OutputPart, others: Collection[str], staged: Collection[str], digest: str) -> list[str]:
    """Which files of a run the log does not name.

    Args:
        target: any part of the table.
        others: files of attempts to stage that did not count.
        staged: those of the attempt that did; if the log says that the run has published, some version names them.
        digest: of the run's identity.
    """
    table, paths = find_table(target), {*others, *staged}
    if table is None or not paths:
        return []
    if any(about.get("run-digest") == digest for about in map(told, table.history())):
        paths -= set(staged)
    named = {unquote(path) for path in pa.table(table.get_add_actions(flatten=True)).column("path").to_pylist()}
    return sorted(path for path in paths if unquote(path) not in named)


def remove(target: OutputPart, paths: Collection[str]) -> None:
    """Remove files; those that are gone are no error."""
    location = location_of(target).rstrip("/")
    for path in paths:
        with suppress(FileNotFoundError):
            if "://" not in location:
                Path(location, unquote(path)).unlink()
            else:
                fs, there = open_location(f"{location}/{unquote(path)}")
                fs.rm_file(there)
