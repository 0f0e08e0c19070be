"""Placing head keys on tasks: pinned whole, split by fractional weights, or among a few choices each (greedy-d).

Keys are numbered from 0, heaviest first. A task of speed s has room for s times the level.

What ``partial_key``, ``d_choices`` and ``w_choices`` have in common. The published methods send one
row after the other to the least loaded choice of its key (PKG, section 3; Azar et al. 1999). A
plan is made once for a stage, from counts. So whole counts are placed at once, heaviest key first: the rows of a key
fill its choices up to one level, on top of the load they have already.
"""

import heapq
import math
import struct
from collections.abc import Callable, Sequence
from functools import cache

import mmh3
import numpy as np

from skewless.planner.placement.placement import Indices, Placement, Rows
from skewless.routing.plan import GOLDEN_SECTION

#: A piece smaller than this part of the water level is not worth a partial state; a task may
#: end up to that much off the level instead. Relative to the level and not to the key: a key
#: that needs a thousand tasks has a thousand small pieces, all of them worth it.
SLIVER = 1 / 512
#: A key with more than this part of the level is heavy: its count is hardly off.
HEAVY = 1 / 16
#: Where nobody knows what rows cost, at most so many keys are spread, each over at most so many tasks, in pieces of at
#: least ``SPREAD_ROWS`` on average.
SPREAD_KEYS, SPREAD_TASKS, SPREAD_ROWS = 64, 64, 16


def water_level(base: Rows, rows: float, sizes: Rows | None = None) -> float:
    """The lowest level to which ``rows`` can be poured on top of ``base``, the rows that each task has already.

    The least L with ``sum(max(0, L * sizes - base)) >= rows``; tasks above it take nothing. Sizes are 1 by default.
    """
    sizes = np.ones(len(base)) if sizes is None else sizes
    order = np.argsort(base / sizes, kind="stable")
    floors = (base / sizes)[order]
    # If the n lowest tasks are poured full, their common level is (their base + rows) / their size.
    levels = (np.cumsum(base[order]) + rows) / np.cumsum(sizes[order])
    above = np.append(floors[1:], np.inf)
    return float(levels[int(np.argmax(levels <= above))])


def pour(rows: Rows, base: Rows) -> Placement:
    """Fill the tasks one after the other up to the water level, heavy keys first; ``rows`` of the keys descend.

    The wrap-around rule of McNaughton (1959): only the key at the end of a task's room is split, so there
    are at most ``keys + tasks - 1`` pieces.
    """
    level, room = rooms(rows, base)
    order = mixed_order(rows, level)
    key, task, amount = wrapped(order, rows[order], room, level * SLIVER)
    return Placement.of_rows(len(rows), key, task, amount)


def spread(rows: Rows, base: Rows, sizes: Rows | None = None) -> Placement:
    """Give each task a part of every heavy key in proportion to its size, and pour the others; ``rows`` descend.

    However dear the rows of a heavy key are, no task then has more of them than another. The costs of light keys, of
    which a task has many, are even by themselves.
    """
    sizes = np.ones(len(base)) if sizes is None else sizes
    pieces = min(len(base), SPREAD_TASKS)
    heavy = min(SPREAD_KEYS, int(np.count_nonzero(rows >= SPREAD_ROWS * pieces)))
    step = -(-len(base) // pieces)
    places = [np.arange(number % step, len(base), step) for number in range(heavy)]
    key = np.repeat(np.arange(heavy), [len(place) for place in places])
    task = np.concatenate([*places, np.zeros(0, dtype=np.int64)])
    amount = np.concatenate([*(rows[n] * sizes[at] / sizes[at].sum() for n, at in enumerate(places)), np.zeros(0)])
    level, room = rooms(rows[heavy:], base + np.bincount(task, weights=amount, minlength=len(base)), sizes)
    light = mixed_order(rows[heavy:], level)
    other, at, poured = wrapped(light + heavy, rows[heavy:][light], room, level * SLIVER)
    found = np.concatenate([key, other]), np.concatenate([task, at]), np.concatenate([amount, poured])
    return Placement.of_rows(len(rows), *found)


def place_whole(rows: Rows, base: Rows) -> Placement:
    """Give each key whole, heaviest first, to the task that is done with it first (LPT, Graham 1969)."""
    tasks = np.full(len(rows), -1, dtype=np.int64)
    return Placement.pinned(_longest_first(tasks, rows, base))


def place_whole_in_place(rows: Rows, base: Rows, old: Placement) -> Placement:
    """Like ``place_whole``, but keys stay where they are as long as their task is below the level.

    The level is the best that whole keys could reach: the water level, or the heaviest key. A key
    that is split now stays with the first of its tasks.
    """
    level, room = rooms(rows, base)
    room = np.maximum(room, max(level, float(rows.max(initial=0.0))) - base)
    home = Placement.pinned(old.first_tasks)
    stays = kept_rows(home, rows, room, level * SLIVER, home.key)
    tasks = np.where(stays >= rows, home.task, -1)
    kept = np.bincount(home.task, weights=np.where(tasks >= 0, rows, 0.0), minlength=len(base))
    return Placement.pinned(_longest_first(tasks, rows, base + kept))


def rooms(rows: Rows, base: Rows, sizes: Rows | None = None) -> tuple[float, Rows]:
    """The water level, and what each task can take up to it, shape ``(tasks,)``."""
    level = water_level(base, float(rows.sum()), sizes)
    return level, np.maximum(level * (1.0 if sizes is None else sizes) - base, 0.0)


def kept_rows(old: Placement, amount: Rows, room: Rows, sliver: float, rank: Indices) -> Rows:
    """How much of each piece stays: those of a task in the order of ``rank``, until it is full.

    A whole piece may exceed the room by a sliver; a part of a piece must be more than a sliver.
    """
    by_task = np.lexsort((rank, old.task))
    amounts, tasks = amount[by_task], old.task[by_task]
    sums = np.cumsum(amounts)
    begins = np.flatnonzero(np.diff(tasks, prepend=-1))
    before = sums - amounts
    before -= np.repeat(before[begins], np.diff(begins, append=len(tasks)))
    left = room[tasks] - before
    stays = np.where(amounts <= left + sliver, amounts, np.where(left > sliver, left, 0.0))
    stays[left <= 0] = 0.0
    found = np.empty_like(stays)
    found[by_task] = stays
    return found


def mixed_order(rows: Rows, level: float) -> Indices:
    """Heavy keys first, by weight; then the light ones, with their weights well mixed.

    Among light keys of about the same count, those with the higher counts are more likely overcounted. In the order of
    weight the overcounted keys would meet on one task, which would get fewer rows than predicted.
    """
    heavy = int(np.count_nonzero(rows > level * HEAVY))
    light = np.arange(heavy, len(rows))
    mixed = light[np.argsort(light * GOLDEN_SECTION % (1 << 32), kind="stable")]
    return np.concatenate([np.arange(heavy), mixed])


def wrapped(keys: Indices, rows: Rows, room: Rows, sliver: float) -> tuple[Indices, Indices, Rows]:
    """Lay keys end to end along the rooms of the tasks, roomiest first, and cut them where a room ends.

    The end of a room within a sliver of the end of a key is moved there. All ends lie on one line, so what one task
    gets too much or too little is made up by the next, and slivers never add up. Each piece has a key, a task and rows.
    """
    if not len(keys):
        return keys, keys, rows
    order = np.argsort(-room, kind="stable")
    ends = np.cumsum(rows)
    total = float(ends[-1])
    room_ends = np.cumsum(room[order])
    room_ends *= total / room_ends[-1] if room_ends[-1] > 0 else 0.0
    room_ends = _snapped(room_ends, ends, sliver)
    room_ends[-1] = total
    room_ends = np.maximum.accumulate(room_ends)
    # Every piece ends where a key or a room ends; its middle says to which both it belongs.
    cuts = np.sort(np.concatenate([ends, room_ends]))
    cuts = cuts[np.flatnonzero(np.diff(cuts, prepend=-1.0))]
    starts = np.append(0.0, cuts[:-1])
    middles = (starts + cuts) / 2
    key = np.minimum(np.searchsorted(ends, middles, side="right"), len(keys) - 1)
    task = np.minimum(np.searchsorted(room_ends, middles, side="right"), len(order) - 1)
    missing = np.flatnonzero(np.bincount(key, minlength=len(keys)) == 0)  # keys without rows
    key, task = np.append(key, missing), np.append(task, np.zeros(len(missing), dtype=np.int64))
    return keys[key], order[task], np.append(cuts - starts, np.zeros(len(missing)))


def _snapped(room_ends: Rows, ends: Rows, sliver: float) -> Rows:
    at = np.searchsorted(ends, room_ends)
    above = ends[np.minimum(at, len(ends) - 1)]
    below = np.where(at > 0, ends[np.maximum(at - 1, 0)], 0.0)
    nearest = np.where(above - room_ends < room_ends - below, above, below)
    return np.where(np.abs(nearest - room_ends) <= sliver, nearest, room_ends)


def _longest_first(tasks: Indices, rows: Rows, base: Rows) -> Indices:
    placed = tasks.copy()
    loads = [(load, task) for task, load in enumerate(base.tolist())]
    heapq.heapify(loads)
    for number in np.flatnonzero(tasks < 0).tolist():
        load, task = loads[0]
        heapq.heapreplace(loads, (load + float(rows[number]), task))
        placed[number] = task
    return placed


#: Seed of the seeds of the choices' hashes; neither the ring's nor that of the buckets.
CHOICE_SEED = 0xC401CE
#: The head are the keys with at least 1 / (HEAD_PARTS * tasks) of the rows (Nasir et al. 2016, theta between 1/(5n) and
#: 2/n): lighter keys are balanced by two choices.
HEAD_PARTS = 5
#: By which part of all rows the tasks of some keys together may be overloaded when the number of choices is chosen,
#: however many tasks they are (Nasir et al. 2016).
EPSILON = 1e-4


def choices_of(key: str, tasks: int, count: int) -> Sequence[int]:
    """So many choices of a key: distinct tasks, the same in every stage, independent of the ring; at most all tasks.

    The first steps of a shuffle (Fisher and Yates 1938) of all tasks, with one independent hash of
    the key for each step. So none comes twice, and a further choice changes none of the others.
    """
    if count >= tasks:
        return range(tasks)
    raw = key.encode()
    moved: dict[int, int] = {}
    found = []
    for step in range(count):
        drawn = step + mmh3.hash(raw, _seed(step), signed=False) % (tasks - step)
        found.append(moved.get(drawn, drawn))
        moved[drawn] = moved.get(step, step)
    return found


def pour_over_choices(keys: Sequence[str], rows: Rows, base: Rows, counts: Indices, *, splittable: bool) -> Placement:
    """Pour each key, heaviest first, over its choices up to the lowest level that they have in common.

    A choice above that level gets nothing, nor does one that would get a sliver
    (``pin_or_split.SLIVER`` of the fair share): it is not worth a partial state. Equal levels are taken in the order of
    the choices. Unless it is splittable, a key goes whole to the least loaded of its choices. Each key has its ``rows``
    and a number of choices (``counts``); each task has ``base`` rows already.
    """
    levels: list[float] = base.tolist()
    sliver = SLIVER * (float(base.sum()) + float(rows.sum())) / len(levels) if splittable else math.inf
    key: list[int] = []
    task: list[int] = []
    poured: list[float] = []
    offered, amounts = counts.tolist(), rows.tolist()
    for number in np.argsort(-rows, kind="stable").tolist():
        mine = choices_of(keys[number], len(levels), offered[number])
        for one, amount in _poured(levels, mine, amounts[number], sliver):
            levels[one] += amount
            key.append(number)
            task.append(one)
            poured.append(amount)
    return Placement.of_rows(
        len(keys), np.array(key, dtype=np.int64), np.array(task, dtype=np.int64), np.array(poured, dtype=np.float64)
    )


def pour_head(
    keys: Sequence[str], rows: Rows, base: Rows, choices: Callable[[Rows, int], int], *, splittable: bool
) -> tuple[str, Placement] | None:
    """Pour head keys over as many choices each as ``choices`` says, and other keys over two; see ``pour_over_choices``.

    ``choices`` is asked with the shares of the head keys, descending, and the number of tasks.

    Returns:
        The placement, after a sentence about it; None if there is nothing to choose.
    """
    tasks, total = len(base), float(base.sum() + rows.sum())
    if tasks == 1 or not keys or not total:
        return None
    head = rows / total >= 1.0 / (HEAD_PARTS * tasks)
    wanted = choices(-np.sort(-rows[head] / total), tasks)
    placed = pour_over_choices(keys, rows, base, np.where(head, wanted, 2), splittable=splittable)
    words = f"place {head.sum():,} heavy keys, {wanted} choices each, and {(~head).sum():,} others, two each"
    return f"{words}: {placement_in_words(placed, keys)}", placed


def enough_choices(head: Rows, tasks: int) -> int:
    """The fewest choices that a head key needs, so that no part of the head overloads its tasks; 2 at least.

    Nasir et al. 2016: the least d >= 2 such that for each h, for the h heaviest keys,
    ``sum(i <= h) p_i + (b/n)^d sum(h < i <= head) p_i + (b/n)^2 sum(i > head) p_i <= b/n + eps``
    with ``b = n - n ((n-1)/n)^(h d)``, the expected number of different tasks among their h d choices. ``head`` has the
    shares p_i of the head keys, descending. Where no smaller number is enough it is ``tasks``, n.
    """
    if not len(head) or tasks <= 2:
        return min(2, tasks)
    upto, sizes = np.cumsum(head), np.arange(1, len(head) + 1)
    rest, tail = upto[-1] - upto, max(0.0, 1.0 - float(upto[-1]))
    # The first sum alone must fit, b/n >= sum - eps: that bounds d from below for each h.
    needed = np.log1p(EPSILON - upto) / (sizes * math.log1p(-1.0 / tasks))
    choices = max(2, math.ceil(float(needed.max()) - 1e-9))
    while choices < tasks:
        part = -np.expm1(sizes * choices * math.log1p(-1.0 / tasks))  # b / n
        if bool((upto + part**choices * rest + part**2 * tail <= part + EPSILON).all()):
            return choices
        choices += 1
    return tasks


def placement_in_words(placement: Placement, keys: Sequence[str]) -> str:
    """How many keys are whole and how many are split, the heaviest of these by name."""
    split = placement.split.tolist()
    words = f"{placement.keys - len(split):,} whole"
    if not split:
        return words
    named = ", ".join(repr(keys[number][:20]) for number in split[:3])
    return f"{words}, {len(split):,} split ({named}{', ...' if len(split) > 3 else ''})"


@cache
def _seed(step: int) -> int:
    return mmh3.hash(struct.pack("<i", step), CHOICE_SEED, signed=False)


def _poured(levels: Sequence[float], mine: Sequence[int], rows: float, sliver: float) -> list[tuple[int, float]]:
    lowest = sorted(mine, key=levels.__getitem__)
    poured = rows
    for count, task in enumerate(lowest, 1):
        poured += levels[task]
        level = poured / count
        if count == len(lowest) or level <= levels[lowest[count]] + sliver:
            return [(one, level - levels[one]) for one in lowest[:count]]
    return []
