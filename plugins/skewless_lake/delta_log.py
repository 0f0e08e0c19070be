"""The log of a Delta table: its commits, each by the number of its file, and what it says of the columns of a file."""

import datetime as dt
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pyarrow.parquet as pq

from skewless.run.folder import open_location

#: So many commits are read at once, at most: a bucket takes as long for all of them as for one. The newest is read
#: alone, as it is mostly the one that is looked for, and a commit of many files is large.
_AT_ONCE = 8

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


def of_footer(footer: pq.FileMetaData) -> str:
    """The statistics of a file as a text for the log: bounds and counts of nulls of whole columns.

    Readers skip files that hold no row they ask for.
    """
    bounds, nulls = dict[str, tuple[int | str, int | str]](), dict[str, int]()
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    for number in range(footer.num_columns):
        name = footer.schema.column(number).path
        known = [(group.num_rows, group.column(number).statistics) for group in groups]
        if "." in name or any(statistics is None or not statistics.has_null_count for _, statistics in known):
            continue
        nulls[name] = sum(statistics.null_count for _, statistics in known)
        filled = [statistics for rows, statistics in known if statistics.null_count < rows]
        if filled and all(statistics.has_min_max for statistics in filled):
            with suppress(OverflowError, UnicodeError):  # a time of the year 20,000, a text that is no UTF-8
                least, greatest = min(one.min for one in filled), max(one.max for one in filled)
                if (outer := bounds_of(least, greatest)) is not None:
                    bounds[name] = outer
    lows, highs = ({name: outer[side] for name, outer in bounds.items()} for side in (0, 1))
    about = {"numRecords": footer.num_rows, "minValues": lows, "maxValues": highs, "nullCount": nulls}
    return json.dumps(about, ensure_ascii=False)  # deltalake reads escapes of characters beyond 16 bits as others


def bounds_of(least: Any, greatest: Any) -> tuple[int | str, int | str] | None:
    """Bounds as the log has them, of the least and the greatest value of a column; None if it has none.

    Integers, texts, dates and times have bounds. Floats have none, as Parquet leaves NaN out of them, which to Spark is
    greater than all numbers; nor have decimals, which are no exact numbers in JSON.
    """
    whole = _milliseconds(least) if isinstance(least, dt.datetime) else _plain(least)
    low, high = least[:_LONGEST] if isinstance(least, str) else whole, _high(greatest)
    return None if low is None or high is None else (low, high)


def _high(value: Any) -> int | str | None:
    if isinstance(value, str) and len(value) > _LONGEST:
        kept, left = value[: _LONGEST - 1], value[_LONGEST - 1 :]
        return value if left.startswith(_GREATEST) else kept + _GREATEST
    if isinstance(value, dt.datetime):
        cut_off = dt.timedelta(microseconds=value.microsecond % 1000)
        return _milliseconds(value - cut_off + dt.timedelta(milliseconds=1) if cut_off else value)
    return _plain(value)


def _plain(value: Any) -> int | str | None:
    if isinstance(value, dt.date):
        return value.isoformat()
    return value if isinstance(value, int | str) and not isinstance(value, bool) else None


def _milliseconds(value: dt.datetime) -> str:
    if value.tzinfo is None:
        return value.isoformat(timespec="milliseconds")
    return value.astimezone(dt.UTC).replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"
