"""Cuts large Parquet files into units, along their row groups; and how large Spark's own input splits are."""

from collections.abc import Collection, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

from skewless.bounds import makespan
from skewless_spark.session import session as queries

#: Smaller pieces are not worth opening a file for.
LEAST_BYTES = 256 << 10
#: A larger file is cut into pieces of about so many bytes; smaller ones where files are few.
CUT_BYTES = 64 << 20
#: A file is cut if it is more than this many times as large as a piece.
_SLACK = 2
#: Spark's own scan decodes 4,096 rows at a time, whatever their bytes. Files whose rows have more than this on average,
#: or one of whose row groups has this many bytes of one column of texts, are not left to it.
_WIDE_ROW_BYTES, _WIDE_BYTES = 64 << 10, 512 << 20


def piece_bytes(sizes: Sequence[int], share: float | None) -> int:
    """Bytes that a unit should have: at most ``CUT_BYTES``, and few enough for the smallest wave.

    Args:
        share: the fraction of the input that the smallest wave has; None for what is in no wave, and not cut.
    """
    return max(LEAST_BYTES, sum(sizes) if share is None else min(CUT_BYTES, int(sum(sizes) * share)))


def is_large(size: int, piece: int) -> bool:
    """Whether a file is to be cut."""
    return size > max(CUT_BYTES, piece) or size > _SLACK * piece


def cut_groups(pieces: Sequence[tuple[int, int]], size: int, piece: int) -> list[tuple[int, int]]:
    """Ranges of neighbouring row groups, each of about ``piece`` bytes.

    Args:
        pieces: ``(rows, bytes)`` of each row group; only the proportions of the bytes matter.
    """
    total = sum(weight for _, weight in pieces) or 1
    wanted = piece * total / size
    spans, start, filled = [], 0, 0.0
    for number, (_, weight) in enumerate(pieces):
        if filled and filled + weight / 2 > wanted:
            spans.append((start, number))
            start, filled = number, 0.0
        filled += weight
    return [*spans, (start, len(pieces))]


def has_wide_rows(footer: pq.FileMetaData) -> bool:
    """Whether a file may have so wide rows side by side that Spark's own scan has no memory for them.

    Bytes are told for a row group as a whole: where they are many, a few of its rows may have most of them.
    """
    for group in map(footer.row_group, range(footer.num_row_groups)):
        if 0 < group.num_rows * _WIDE_ROW_BYTES < group.total_byte_size:
            return True
        if group.total_byte_size > _WIDE_BYTES:  # else it needs no look at its columns
            texts = (one for one in map(group.column, range(group.num_columns)) if one.physical_type == "BYTE_ARRAY")
            if any(one.total_uncompressed_size > _WIDE_BYTES for one in texts):
                return True
    return False


def rows_at_a_time(footer: pq.FileMetaData, groups: Sequence[int] | None, columns: Collection[str]) -> int:
    """How many rows of a Parquet file are read into a batch, so that it has about ``queries.BATCH_BYTES`` at most."""
    least = queries.BATCH_ROWS
    for group in map(footer.row_group, range(footer.num_row_groups) if groups is None else groups):
        if group.total_byte_size * least > queries.BATCH_BYTES * group.num_rows:  # else it needs no look at its columns
            chunks = map(group.column, range(group.num_columns))
            size = sum(one.total_uncompressed_size for one in chunks if one.path_in_schema.split(".")[0] in columns)
            least = max(1, min(least, queries.BATCH_BYTES * group.num_rows // max(1, size)))
    return least


#: One plan of splits is better than another with fewer of them if it ends sooner by more than this part.
_WORTH = 0.01


def split_bytes(sizes: Sequence[int], splits: int, slots: int) -> int:
    """The limit of a split's bytes with which tasks that take as long as they have bytes end soonest.

    Spark sorts files by size and fills splits one after the other with whole files; a file that no longer fits begins
    the next split ("next fit decreasing"). Splits that are filled to an even size alone are one file short each, and
    what is left over makes further splits, for which all slots but a few would wait. So limits are tried with which the
    files fill just the splits that are wanted, or one or two more for each slot.

    Returns:
        The limit; an even share if a file is larger than that, since Spark cuts it then. No file is cut into pieces of
        less than ``LEAST_BYTES``.
    """
    ordered = np.sort(np.asarray([size for size in sizes if size], dtype=np.int64))[::-1]
    if not len(ordered):
        return LEAST_BYTES
    largest, even = int(ordered[0]), -(-int(ordered.sum()) // splits)
    if largest > even:
        return max(even, min(largest, LEAST_BYTES))
    ends = np.cumsum(ordered)
    best, least = even, float("inf")
    of_counts = [_smallest_limit(ends, splits + more * slots, largest) for more in range(3)]
    for limit in (*of_counts, even):
        ended = makespan(np.array(_filled(ends, limit), dtype=np.float64), slots)
        if ended < least * (1 - _WORTH):
            best, least = limit, ended
    return best


def _smallest_limit(ends: npt.NDArray[np.int64], count: int, largest: int) -> int:
    """The smallest limit with which the files fill at most so many splits. A larger limit never fills more."""
    total = int(ends[-1])
    low, high = max(largest, -(-total // count)), total
    while low < high:
        middle = (low + high) // 2
        if len(_filled(ends, middle)) <= count:
            high = middle
        else:
            low = middle + 1
    return low


def _filled(ends: npt.NDArray[np.int64], limit: int) -> list[int]:
    """The bytes of each split, as Spark fills them.

    Args:
        ends: the sums of the sizes up to each file, largest file first.
        limit: of a split's bytes, at least the size of the largest file.
    """
    found, before = list[int](), 0
    while before < ends[-1]:
        reached = int(ends[np.searchsorted(ends, before + limit, side="right") - 1])
        found.append(reached - before)
        before = reached
    return found
