"""The log of a Delta table: its commits, each by the number of its file, and what it says of the columns of a file."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from skewless.run.objects.location import open_location

#: So many commits are read at once, at most: a bucket takes as long for all of them as for one. The newest is read
#: alone, as it is mostly the one that is looked for, and a commit of many files is large.
_AT_ONCE = 8

#: Characters of a text in the log, at most.
_LONGEST = 64
_GREATEST = "\U0010ffff"

#: The actions of a commit: each says by its one name what it is.
Actions = list[dict[str, Any]]


def commits(location: str, newest: int) -> Iterator[tuple[int, Actions]]:
    """The versions up to one, the newest first, as far back as the log has their commits.

    ``DeltaTable.history`` is no help: it counts down from the version that was opened, though it finds newer commits,
    too, and none that says nothing of itself. Below either, its numbers are those of other versions.
    """
    fs, root = open_location(location)

    def read(version: int) -> Actions | None:
        try:
            log = fs.cat_file(f"{root.rstrip('/')}/_delta_log/{version:020d}.json")
        except FileNotFoundError:  # it was removed when a later checkpoint had all of it
            return None
        return [json.loads(line) for line in log.splitlines() if line.strip()]

    last, many = newest, 1
    with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
        while last >= 0:
            versions = range(last, max(last - many, -1), -1)
            for version, actions in zip(versions, pool.map(read, versions), strict=True):
                if actions is None:
                    return
                yield version, actions
            last, many = last - many, min(2 * many, _AT_ONCE)


def said_in(actions: Actions) -> dict[str, Any]:
    """What a commit says of itself; empty if it says nothing."""
    return next((one["commitInfo"] for one in actions if one.get("commitInfo")), {})


class Bounds(NamedTuple):
    """What is known of a column of a file: its least value or one below it, its greatest or one above, and nulls.

    Readers skip files that hold no row they ask for. Each is None if it is not known.
    """

    low: Any
    high: Any
    nulls: int | None


def of_footer(footer: pq.FileMetaData) -> str:
    """The statistics of a file, from those of its row groups."""
    return of_bounds(footer.num_rows, dict(_columns(footer)))


def of_bounds(rows: int, columns: Mapping[str, Bounds]) -> str:
    """The statistics of a file, as a text for the log.

    Integers, texts, dates and times have bounds. Floats have none, as Parquet leaves NaN out of them, which to Spark is
    greater than all numbers; nor have decimals, which are no exact numbers in JSON.
    """
    lows = {name: _low(one.low) for name, one in columns.items()}
    highs = {name: _high(one.high) for name, one in columns.items()}
    known = [name for name in columns if lows[name] is not None and highs[name] is not None]
    told = {
        "numRecords": rows,
        "minValues": {name: lows[name] for name in known},
        "maxValues": {name: highs[name] for name in known},
        "nullCount": {name: one.nulls for name, one in columns.items() if one.nulls is not None},
    }
    return json.dumps(told)


def _columns(footer: pq.FileMetaData) -> Iterator[tuple[str, Bounds]]:
    """The columns that are no part of another one."""
    for number in range(footer.num_columns):
        name = footer.schema.column(number).path
        if "." in name:
            continue
        groups = [footer.row_group(group) for group in range(footer.num_row_groups)]
        found = [(group.num_rows, group.column(number).statistics) for group in groups]
        if any(one is None or not one.has_null_count for _, one in found):
            yield name, Bounds(None, None, None)
            continue
        filled = [one for rows, one in found if one.null_count < rows]
        yield name, Bounds(*_extremes(filled), sum(one.null_count for _, one in found))


def _extremes(groups: Sequence[pq.Statistics]) -> tuple[Any, Any]:
    if not groups or not all(one.has_min_max for one in groups):
        return None, None
    try:
        return min(one.min for one in groups), max(one.max for one in groups)
    except OverflowError:  # a date or a time that Python does not have, such as one of the year 20,000
        return None, None


def known_values(column: pa.ChunkedArray) -> list[Any]:
    """The values of a column of a log; None for a date or a time that Python does not have."""
    found: list[Any] = []
    for one in column:
        try:
            found.append(one.as_py())
        except (OverflowError, ValueError):
            found.append(None)
    return found


def millisecond_up(value: dt.datetime) -> dt.datetime | None:
    """A time a millisecond later, as the log cuts times off; None at the end of the year 9999, Python's last one."""
    try:
        return value + dt.timedelta(milliseconds=1)
    except OverflowError:
        return None


def _low(value: Any) -> int | str | None:
    if isinstance(value, str):
        return value[:_LONGEST]
    return _milliseconds(value) if isinstance(value, dt.datetime) else _plain(value)


def _high(value: Any) -> int | str | None:
    if isinstance(value, str) and len(value) > _LONGEST:
        kept, left = value[: _LONGEST - 1], value[_LONGEST - 1 :]
        return None if left.startswith(_GREATEST) else kept + _GREATEST
    if isinstance(value, dt.datetime):
        whole = value.replace(microsecond=value.microsecond // 1000 * 1000)
        above = value if value == whole else millisecond_up(whole)
        return None if above is None else _milliseconds(above)
    return _plain(value)


def _plain(value: Any) -> int | str | None:
    if isinstance(value, dt.date):
        return value.isoformat()
    return value if isinstance(value, int | str) and not isinstance(value, bool) else None


def _milliseconds(value: dt.datetime) -> str:
    """A time, cut off to milliseconds as the log has times."""
    if value.tzinfo is None:
        return value.isoformat(timespec="milliseconds")
    return value.astimezone(dt.UTC).replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"
