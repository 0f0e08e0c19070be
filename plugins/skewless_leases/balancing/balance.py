"""Who should hold what: sticky and even, from the tables alone.

Every worker computes this for all workers and enacts only its own lines. Those who see the same
tables come to the same answer, so that no two reach for the same partition; those who do not are
sorted out by the store.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Assignment:
    """Who should take which partition.

    Attributes:
        free: for each free partition that somebody has room for, who should take it.
        moves: for each partition that should move, from whom (the victim) to whom (the thief).
    """

    free: Mapping[str, str]
    moves: Mapping[str, tuple[str, str]]


def assign(
    free: Sequence[str],
    loads: Mapping[str, int],
    room: Mapping[str, int],
    movable: Mapping[str, Sequence[str]],
) -> Assignment:
    """Give each free partition to whoever has least, then move partitions while that strictly improves.

    A move strictly improves the balance if the thief, with the partition, still has less than the
    victim had: their loads differ by at least two. With less it would only swap their places, and they
    could go on doing that for ever.

    Args:
        free: the partitions that nobody holds and nobody has a claim on.
        loads: how many partitions each live worker holds, those that it is about to get included and
            those that it is about to lose not.
        room: how many partitions each live worker can hold at most.
        movable: the partitions of each worker that may be moved now.
    """
    left = dict(loads)
    given: dict[str, str] = {}
    moved: dict[str, tuple[str, str]] = {}
    stock = {worker: sorted(partitions) for worker, partitions in movable.items()}
    for partition in sorted(free):
        if (receiver := _poorest(left, room)) is None:
            break
        given[partition] = receiver
        left[receiver] += 1
    while (thief := _poorest(left, room)) is not None:
        victim = max(
            (worker for worker in left if stock.get(worker)), key=lambda worker: (left[worker], worker), default=None
        )
        if victim is None or left[victim] - left[thief] < 2:
            break
        moved[stock[victim].pop(0)] = (victim, thief)
        left[victim] -= 1
        left[thief] += 1
    return Assignment(given, moved)


def _poorest(loads: Mapping[str, int], room: Mapping[str, int]) -> str | None:
    """Who has least, of those with room; the first by name, if several."""
    with_room = [worker for worker, load in loads.items() if load < room[worker]]
    return min(with_room, key=lambda worker: (loads[worker], worker), default=None)
