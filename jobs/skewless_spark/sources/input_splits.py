"""How large the input splits are that Spark reads, so that the tasks that read them end at about the same time."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from skewless_spark.sources.cutting import LEAST_BYTES

#: One plan of splits is better than another with fewer of them if it ends sooner by more than this part.
_WORTH = 0.01


def split_bytes(sizes: Sequence[int], splits: int, slots: int) -> int:
    """The limit of a split's bytes with which tasks that take as long as they have bytes end soonest.

    Spark sorts files by size and fills splits one after the other with whole files; a file that no longer fits begins
    the next split ("next fit decreasing"). Splits that are filled to an even size alone are one file short each, and
    what is left over makes further splits, for which all slots but a few would wait. So limits are tried with which the
    files fill just the splits that are wanted, or one or two more for each slot.

    Args:
        sizes: of all files that the query reads, in bytes; there may be none.
        splits: that are wanted.
        slots: tasks that run side by side.

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
        ended = _makespan(_filled(ends, limit), slots)
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


def _makespan(loads: Sequence[int], slots: int) -> int:
    """When the last of tasks ends that take as long as their load, each given to the slot that is free first."""
    free = [0] * slots
    for load in loads:
        heapq.heapreplace(free, free[0] + load)
    return max(free)
