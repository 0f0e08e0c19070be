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
    state more is cheaper than many that move. What is over is laid end to end along the tasks that have room. Cycles
    are then removed from the graph of keys and tasks, so that there are at most ``keys + tasks - 1`` pairs.

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
    key, task = pairs // len(base), pairs % len(base)
    together, left = without_cycles(key, task, together)
    return _Wanted(key[left], task[left], together[left])


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


#: A graph with more pairs of split keys and tasks than this is left as it is: cycles go one after the other.
MOST_PAIRS = 40_000
#: Steps along pairs, about 70 ns each, so that a call stays below a second.
MOST_STEPS = 12_000_000


def without_cycles(key: Indices, task: Indices, rows: Rows) -> tuple[Rows, npt.NDArray[np.bool_]]:
    """Rows of each pair such that every key and every task has what it had, without cycles; and which pairs are left.

    Around a cycle of pairs (key, task), (key', task), (key', task'), ... rows can be handed from one
    to the next without changing any sum, until one of the pairs has none. A graph without cycles is a
    forest: at most ``keys + tasks - 1`` pairs are left.

    Pairs are distinct, by ascending key. Cycles stay after so many steps, and of more than ``MOST_PAIRS`` pairs.
    """
    left = np.ones(len(rows), dtype=bool)
    pairs = np.flatnonzero(np.bincount(key)[key] > 1)
    if len(pairs) > MOST_PAIRS:
        return rows, left
    ends, before = np.stack([key, task + int(key.max(initial=0)) + 1]), -1
    while before != len(pairs):  # a pair whose key or task has no other one is on no cycle
        before = len(pairs)
        for end in ends:
            pairs = pairs[np.bincount(end[pairs])[end[pairs]] > 1]
    forest = _Forest(rows[pairs], int(ends.max(initial=0)) + 1)
    forest.add(*ends[:, pairs].tolist())
    found = rows.copy()
    found[pairs] = forest.rows
    left[pairs[forest.emptied]] = False
    return found, left


class _Forest:
    """Trees with pointers to their roots; each node knows the pair on the way to its parent."""

    def __init__(self, rows: Rows, nodes: int) -> None:
        self.rows: list[float] = rows.tolist()
        self.parent = [-1] * nodes
        self.link = [-1] * nodes
        self.emptied: list[int] = []
        self.steps = 0
        #: At which step a node was last passed on the way to its root.
        self.passed = [0] * nodes

    def add(self, ones: list[int], others: list[int]) -> None:
        """Add pairs of nodes one after the other, and empty a pair of each cycle."""
        parent, link = self.parent, self.link
        # Trees only ever grow together: a pair that is emptied lies on a cycle. So which tree a node is in is a matter
        # of union and find (Tarjan 1975), apart from how the tree is rooted.
        tree, size = list(range(len(parent))), [1] * len(parent)
        for number, (one, other) in enumerate(zip(ones, others, strict=True)):
            mine, its, node, onto, pair, emptied = one, other, one, other, number, -1
            while tree[mine] != mine:
                tree[mine] = mine = tree[tree[mine]]
            while tree[its] != its:
                tree[its] = its = tree[tree[its]]
            if mine == its:
                above, below = self._ways(one, other)
                # Around the cycle pairs lose and gain rows by turns.
                emptied = self._empty_one([pair, *above[1::2], *below[1::2]], above[::2] + below[::2])
                if emptied not in above:
                    node, onto = other, one
                if self.steps > MOST_STEPS:
                    break
            elif size[mine] > size[its]:
                tree[its], node, onto = mine, other, one
                size[mine] += size[its]
            else:
                tree[mine] = its
                size[its] += size[mine]
            # A node comes to hang on the other one, and the way up from it, to the emptied pair or to its root, is
            # turned round.
            while pair != emptied:
                parent[node], link[node], onto, node, pair = onto, pair, node, parent[node], link[node]

    def _ways(self, one: int, other: int) -> tuple[list[int], list[int]]:
        """The pairs on the way from each of two nodes of a tree up to the first node that both ways have."""
        parent, link, passed, above, below = self.parent, self.link, self.passed, list[int](), list[int]()
        first = step = self.steps + 1
        while one >= 0:
            passed[one] = step
            above.append(link[one])
            one = parent[one]
            step += 1
        while passed[other] < first:
            below.append(link[other])
            other = parent[other]
        self.steps = step + len(below)
        return above[: passed[other] - first], below

    def _empty_one(self, losers: list[int], winners: list[int]) -> int:
        """Hand rows around a cycle, the way that moves fewer, until a pair has none; that pair, the first of equals."""
        rows = self.rows
        mine, others = [rows[pair] for pair in losers], [rows[pair] for pair in winners]
        if min(others) < min(mine):
            losers, winners, mine = winners, losers, others
        moved = min(mine)
        emptied = losers[mine.index(moved)]
        if mine.count(moved) > 1:
            emptied = min(pair for pair in losers if rows[pair] == moved)
        for pair in losers:
            rows[pair] -= moved
        for pair in winners:
            rows[pair] += moved
        rows[emptied] = 0.0
        self.emptied.append(emptied)
        return emptied
