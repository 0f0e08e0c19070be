"""SpaceSaving (Metwally, Agrawal and El Abbadi, ICDT 2005): the most frequent keys in few counters.

The counters of a source lie in one row, sorted by count in descending order. Counters of equal count are a group, and
a group knows where it starts: a counter to raise swaps places with the first one of its group, which keeps the row
sorted. So a message costs O(1).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from benchmarks.peers.candidates import compiled

#: The key of a counter that has counted nothing yet.
NOBODY = -1


class SpaceSaving(NamedTuple):
    """The summaries of all sources; an unused counter is one of key ``NOBODY`` and count 0."""

    #: Key of each counter, shape (sources, counters).
    keys: npt.NDArray[np.int64]
    #: Messages counted, at least the true number, descending along a row, shape (sources, counters).
    counts: npt.NDArray[np.int64]
    #: The most by which the count exceeds the truth, shape (sources, counters).
    errors: npt.NDArray[np.int64]
    #: Group of each counter, shape (sources, counters).
    groups: npt.NDArray[np.int64]
    #: First counter of each group in use, shape (sources, counters).
    starts: npt.NDArray[np.int64]
    #: Stack of the groups not in use, shape (sources, counters).
    free: npt.NDArray[np.int64]
    #: Height of that stack, shape (sources,).
    free_groups: npt.NDArray[np.int64]
    #: Counter of each key, or -1, shape (sources, distinct). Stands for the hash table of a real source.
    places: npt.NDArray[np.int32]


def empty_summaries(sources: int, counters: int, distinct: int) -> SpaceSaving:
    """Summaries that have seen nothing.

    Args:
        sources: Number of summaries.
        counters: Counters of each, at least one. A count is too high by at most messages / counters.
        distinct: Number of distinct keys; they are numbered 0..distinct-1.
    """
    shape = (sources, counters)
    return SpaceSaving(
        keys=np.full(shape, NOBODY, dtype=np.int64),
        counts=np.zeros(shape, dtype=np.int64),
        errors=np.zeros(shape, dtype=np.int64),
        # Group 0 holds all counters at first; the others are free.
        groups=np.zeros(shape, dtype=np.int64),
        starts=np.zeros(shape, dtype=np.int64),
        free=np.tile(np.arange(1, counters + 1, dtype=np.int64), (sources, 1)) % counters,
        free_groups=np.full(sources, counters - 1, dtype=np.int64),
        places=np.full((sources, distinct), -1, dtype=np.int32),
    )


@compiled
def count_message(summary: SpaceSaving, source: int, key: int) -> int:
    """Count one message of a key at a source.

    A key without a counter takes over the lowest one, with its count.

    Returns:
        The count of the key afterwards.
    """
    place = summary.places[source, key]
    if place < 0:
        place = summary.keys.shape[1] - 1
        evicted = summary.keys[source, place]
        if evicted != NOBODY:
            summary.places[source, evicted] = -1
        summary.keys[source, place] = key
        summary.errors[source, place] = summary.counts[source, place]
        summary.places[source, key] = place
    first = summary.starts[source, summary.groups[source, place]]
    _swap(summary, source, place, first)
    _raise_first(summary, source, first)
    return int(summary.counts[source, first])


@compiled
def _swap(summary: SpaceSaving, source: int, left: int, right: int) -> None:
    """Swap two counters of one group, whose counts are equal."""
    for column in (summary.keys, summary.errors):
        column[source, left], column[source, right] = column[source, right], column[source, left]
    for place in (left, right):
        if summary.keys[source, place] != NOBODY:
            summary.places[source, summary.keys[source, place]] = place


@compiled
def _raise_first(summary: SpaceSaving, source: int, place: int) -> None:
    """Add one to the first counter of a group, which leaves the group upwards."""
    left_group = summary.groups[source, place]
    if place + 1 < summary.keys.shape[1] and summary.groups[source, place + 1] == left_group:
        summary.starts[source, left_group] = place + 1
    else:
        summary.free[source, summary.free_groups[source]] = left_group
        summary.free_groups[source] += 1
    summary.counts[source, place] += 1
    if place > 0 and summary.counts[source, place - 1] == summary.counts[source, place]:
        summary.groups[source, place] = summary.groups[source, place - 1]
        return
    summary.free_groups[source] -= 1
    group = summary.free[source, summary.free_groups[source]]
    summary.groups[source, place] = group
    summary.starts[source, group] = place
