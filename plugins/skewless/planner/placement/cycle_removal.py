"""Removing cycles from the graph of keys and tasks: the same loads with fewer partial states."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from skewless.planner.placement.placement import Indices, Rows

#: A graph with more pairs of split keys and tasks than this is left as it is: the search is no array code.
MOST_PAIRS = 40_000
#: Steps along pairs, about 70 ns each, so that a call stays below a second.
MOST_STEPS = 12_000_000


def without_cycles(
    key: Indices, task: Indices, rows: Rows, most_steps: int = MOST_STEPS
) -> tuple[Rows, npt.NDArray[np.bool_]]:
    """Rows of each pair such that every key and every task has what it had, without cycles; and which pairs are left.

    Around a cycle of pairs (key, task), (key', task), (key', task'), ... rows can be handed from one
    to the next without changing any sum, until one of the pairs has none. A graph without cycles is a
    forest: at most ``keys + tasks - 1`` pairs are left.

    Pairs are distinct, by ascending key. Cycles stay after so many steps, and of more than ``MOST_PAIRS`` pairs.
    """
    first_task = int(key.max(initial=0)) + 1
    split = np.bincount(key, minlength=first_task)[key] > 1
    pairs = np.flatnonzero(split)
    left = np.ones(len(rows), dtype=bool)
    if len(pairs) > MOST_PAIRS:
        return rows, left
    forest = _Forest(rows[pairs], first_task + int(task.max(initial=0)) + 1)
    ends = zip(key[pairs].tolist(), (task[pairs] + first_task).tolist(), strict=True)
    for pair, (one, other) in enumerate(ends):
        forest.add(pair, one, other)
        if forest.steps > most_steps:
            break
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
        # Trees only ever grow together: a pair that is emptied lies on a cycle. So which tree a node is in is a matter
        # of union and find (Tarjan 1975), apart from how the tree is rooted.
        self.tree = list(range(nodes))
        self.size = [1] * nodes
        self.emptied: list[int] = []
        self.steps = 0

    def add(self, pair: int, one: int, other: int) -> None:
        mine, others = self._tree_of(one), self._tree_of(other)
        if mine == others:
            self._close(pair, one, other)
            return
        if self.size[mine] > self.size[others]:
            mine, others, one, other = others, mine, other, one
        self.tree[mine] = others
        self.size[others] += self.size[mine]
        self._hang(one, other, pair)

    def _tree_of(self, node: int) -> int:
        tree = self.tree
        while tree[node] != node:
            tree[node] = node = tree[tree[node]]
        return node

    def _close(self, pair: int, one: int, other: int) -> None:
        up, down = self._ways(one, other)
        link = self.link
        above, below = list(map(link.__getitem__, up)), list(map(link.__getitem__, down))
        self.steps += len(above) + len(below)
        # Around the cycle pairs lose and gain rows by turns.
        emptied = self._empty_one([pair, *above[1::2], *below[1::2]], above[::2] + below[::2])
        if emptied == pair:
            return
        if emptied in above:
            self._cut(up[above.index(emptied)])
            self._hang(one, other, pair)
        else:
            self._cut(down[below.index(emptied)])
            self._hang(other, one, pair)

    def _ways(self, one: int, other: int) -> tuple[list[int], list[int]]:
        """The nodes from each of two nodes of a tree up to, and without, the first that both ways have."""
        parent, up, down = self.parent, [one], [other]
        while (one := parent[one]) >= 0:
            up.append(one)
        while (other := parent[other]) >= 0:
            down.append(other)
        self.steps += len(up) + len(down)
        while up and down and up[-1] == down[-1]:
            up.pop()
            down.pop()
        return up, down

    def _cut(self, node: int) -> None:
        self.parent[node] = self.link[node] = -1

    def _hang(self, one: int, other: int, pair: int) -> None:
        """Make one node the root of its tree, and hang it on the other."""
        parent, link = self.parent, self.link
        while one >= 0:
            above, above_pair = parent[one], link[one]
            parent[one], link[one] = other, pair
            one, other, pair = above, one, above_pair
            self.steps += 1

    def _empty_one(self, even: list[int], odd: list[int]) -> int:
        """Hand rows around a cycle, the way that moves fewer, until a pair has none; that pair."""
        rows = self.rows
        least, least_odd = (min(map(rows.__getitem__, pairs)) for pairs in (even, odd))
        losers, winners, moved = (even, odd, least) if least <= least_odd else (odd, even, least_odd)
        emptied = min([pair for pair in losers if rows[pair] == moved])
        for pair in losers:
            rows[pair] -= moved
        for pair in winners:
            rows[pair] += moved
        rows[emptied] = 0.0
        self.emptied.append(emptied)
        return emptied
