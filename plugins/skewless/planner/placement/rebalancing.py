"""Moving as few rows as can be: tasks above the level hand over what is too much, and no more.

Rows draw the numbers that they drew before. So what is left of a split key stays with its tasks, however unevenly they
got through with it; and a task that has too much gives away the end of a segment of its share.
"""

from itertools import islice
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from skewless.planner.placement.head_keys import SLIVER, kept_rows, rooms, wrapped
from skewless.planner.placement.placement import Indices, Placement, Rows, cells_of, distinct, sums
from skewless.routing.plan import WHOLE_WEIGHT

#: A key that has more segments than this for each of its tasks is laid out anew.
SEGMENTS_PER_TASK = 4
#: Tasks and weights of segments, in their order.
Segments = tuple[list[int], list[int]]


class _Wanted(NamedTuple):
    key: Indices
    task: Indices
    rows: Rows


def rebalance(old: Placement, amounts: Rows, base: Rows) -> Placement:
    """Level the tasks, up to a sliver, by cutting the segments of as few keys as possible.

    Each task keeps its keys, lightest first, until it is at the water level: the heaviest is cut, and one key with a
    state more is cheaper than many that move. What is over is laid end to end along the tasks that have room. So
    there are fewer than ``2 * tasks`` more pairs of key and task than before.

    ``amounts`` are the rows of each piece of ``old``, whose keys are numbered heaviest first; ``base`` the rows that
    each task has beside them.
    """
    if not old.keys:
        return old
    wanted = _wanted(old, amounts, base)
    return _realised(old, amounts, wanted, len(base))


def _wanted(old: Placement, amounts: Rows, base: Rows) -> _Wanted:
    rows = sums(old.key, amounts, old.keys)
    level, room = rooms(rows, base)
    sliver = level * SLIVER
    stays = kept_rows(old, amounts, room, sliver, -old.key)
    rest = rows - sums(old.key, stays, old.keys)
    # A key that keeps all but a sliver of itself keeps that too.
    whole = (rest <= 0) | ((rest < rows) & (rest <= sliver))
    stays = np.where(whole[old.key], amounts, stays)
    room = np.maximum(room - sums(old.task, stays, len(base)), 0.0)
    moving = np.flatnonzero(~whole)
    order = moving[np.argsort(-rest[moving], kind="stable")]
    key, task, poured = wrapped(order, rest[order], room, sliver)
    kept = (stays > 0) | (amounts <= 0) | whole[old.key]
    pairs, where = np.unique(
        np.concatenate([old.key[kept], key]) * len(base) + np.concatenate([old.task[kept], task]), return_inverse=True
    )
    together = sums(where, np.concatenate([stays[kept], poured]), len(pairs))
    return _Wanted(pairs // len(base), pairs % len(base), together)


def _realised(old: Placement, amounts: Rows, wanted: _Wanted, tasks: int) -> Placement:
    """The segments of ``old``, cut where a task is to have less of a key, as ``wanted`` says."""
    before = _Wanted(old.key, old.task, amounts)
    same = _unchanged(before, wanted, old.keys, tasks)
    starts, _ = _ranges(old.key, old.keys)
    first, last = _ranges(wanted.key, old.keys)
    # A key that is to be whole needs no cutting.
    whole = ~same & (last - first == 1)
    moved, weights, stays = old.task.copy(), old.weight.copy(), ~whole[old.key]
    moved[starts[whole]], weights[starts[whole]], stays[starts[whole]] = wanted.task[first[whole]], WHOLE_WEIGHT, True
    same |= whole
    old, amounts = Placement(old.keys, old.key[stays], moved[stays], weights[stays]), amounts[stays]
    cut = np.flatnonzero(~same)
    ends = [0]
    segments: Segments = ([], [])
    kept, left = same[old.key], ~same[wanted.key]
    pieces = zip(old.task[~kept].tolist(), old.weight[~kept].tolist(), amounts[~kept].tolist(), strict=True)
    goals = zip(wanted.task[left].tolist(), wanted.rows[left].tolist(), strict=True)
    for own, target in zip(old.pieces[cut].tolist(), (last - first)[cut].tolist(), strict=True):
        _cut(list(islice(pieces, own)), dict(islice(goals, target)), segments)
        ends.append(len(segments[0]))
    new = _merged([np.repeat(cut, np.diff(ends)), *(np.array(column, dtype=np.int64) for column in segments)])
    # Of a key that is cut up too often lay each task's segments together once, whatever rows that moves.
    often = np.bincount(new[0], minlength=old.keys) > SEGMENTS_PER_TASK * (last - first)
    order = np.lexsort((np.where(often[new[0]], new[1], 0), new[0]))
    new = _merged([column[order] for column in new])
    columns = zip((old.key, old.task, old.weight), new, strict=True)
    key, task, weight = (np.concatenate([before[kept], after]) for before, after in columns)
    order = np.argsort(key, kind="stable")
    return Placement(old.keys, key[order], task[order], weight[order])


def _unchanged(before: _Wanted, wanted: _Wanted, keys: int, tasks: int) -> npt.NDArray[np.bool_]:
    """Which keys have the rows that they should have on every task, up to rounding."""
    old, new = before.key * tasks + before.task, wanted.key * tasks + wanted.task
    pairs = distinct(np.concatenate([old, new]))
    have = sums(np.searchsorted(pairs, old), before.rows, len(pairs))
    want = sums(np.searchsorted(pairs, new), wanted.rows, len(pairs))
    gone = np.ones(len(pairs), dtype=bool)
    gone[np.searchsorted(pairs, new)] = False
    differs = (np.abs(have - want) > 1e-6 * np.maximum(1.0, have)) | gone
    same: npt.NDArray[np.bool_] = np.bincount(pairs[differs] // tasks, minlength=keys) == 0
    return same


def _ranges(keys: Indices, count: int) -> tuple[Indices, Indices]:
    ends = np.cumsum(np.bincount(keys, minlength=count))
    return np.append(0, ends[:-1]), ends


def _cut(pieces: list[tuple[int, int, float]], target: dict[int, float], segments: Segments) -> None:
    """Append the segments of one key, so that each task comes to have about the rows it should have."""
    lacks, kept, together = dict(target), list[float](), 0
    for task, weight, rows in pieces:
        keeps = min(rows, lacks.get(task, 0.0))
        kept.append(keeps)
        together |= weight
        if keeps:
            lacks[task] -= keeps
    takers = [(task, lack) for task, lack in reversed(lacks.items()) if lack > 0]
    unit = min(WHOLE_WEIGHT // cells_of(len(target)), together & -together)
    for (task, weight, rows), keeps in zip(pieces, kept, strict=True):
        left, over, handed = weight, rows - keeps, 0.0
        while over > 0 and left > 0 and takers:
            taker, lack = takers.pop()
            part = min(over, lack)
            handed += weight * part / rows
            # What one cut is rounded off by is left to the next one, so that many small cuts add up.
            cut = min(left, round(handed / unit) * unit - (weight - left))
            if cut > 0:
                segments[0].append(taker)
                segments[1].append(cut)
                left -= cut
            over, lack = over - part, lack - part
            if lack > 1e-9 * rows:
                takers.append((taker, lack))
        if left > 0:
            # What rounding leaves of a segment stays, unless its task is to have none of the key.
            segments[0].append(task if task in target else max(target, key=lambda task: (target[task], -task)))
            segments[1].append(left)


def _merged(segments: list[Indices]) -> list[Indices]:
    """Keys, tasks and weights of segments, without neighbours that have the same key and task."""
    key, task, weight = segments
    begins = np.flatnonzero((np.diff(key, prepend=-1) != 0) | (np.diff(task, prepend=-1) != 0))
    return [key[begins], task[begins], np.add.reduceat(weight, begins) if len(begins) else weight]
