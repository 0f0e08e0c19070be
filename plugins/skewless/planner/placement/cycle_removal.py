"""Removing cycles from the graph of keys and tasks: the same loads with fewer partial states."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from skewless.planner.placement.placement import Indices, Rows

#: A graph with more pairs of split keys and tasks than this is left as it is: the search is no array code.
MOST_PAIRS = 40_000


def without_cycles(key: Indices, task: Indices, rows: Rows) -> tuple[Rows, npt.NDArray[np.bool_]]:
    """Rows of each pair such that every key and every task has what it had, and no cycle is left.

    Around a cycle of pairs (key, task), (key', task), (key', task'), ... rows can be handed from one
    to the next without changing any sum, until one of the pairs has none. A graph without cycles is a
    forest: at most ``keys + tasks - 1`` pairs are left.

    Args:
        key: of each pair, ascending; pairs are distinct, shape ``(pairs,)``.
        task: of each pair, same shape.
        rows: of each pair, same shape.

    Returns:
        The rows of each pair, and whether the pair is left, both of the same shape.
    """
    split = np.bincount(key, minlength=int(key.max(initial=0)) + 1)[key] > 1
    pairs = np.flatnonzero(split)
    left = np.ones(len(rows), dtype=bool)
    if len(pairs) > MOST_PAIRS:
        return rows, left
    forest = _Forest(rows)
    for pair in pairs.tolist():
        forest.add(pair, ("key", int(key[pair])), ("task", int(task[pair])))
    found = rows.copy()
    found[pairs] = [forest.rows[pair] for pair in pairs.tolist()]
    left[forest.emptied] = False
    return found, left


_Node = tuple[str, int]


class _Forest:
    """Trees with pointers to their roots; each node knows the pair on the way to its parent."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows.tolist()
        self.parent: dict[_Node, tuple[_Node, int]] = {}
        self.emptied: list[int] = []

    def add(self, pair: int, one: _Node, other: _Node) -> None:
        """Add a pair; where it closes a cycle, a pair of that is emptied and left out."""
        up, down = self._way(one), self._way(other)
        if up[-1] != down[-1]:
            self._hang(one, other, pair)
            return
        while len(up) > 1 and len(down) > 1 and up[-2] == down[-2]:
            up.pop()
            down.pop()
        cycle = [pair, *(self.parent[node][1] for node in down[:-1])]
        cycle += [self.parent[node][1] for node in reversed(up[:-1])]
        emptied = self._empty_one(cycle)
        if emptied == pair:
            return
        child = next(node for node in (*up[:-1], *down[:-1]) if self.parent[node][1] == emptied)
        del self.parent[child]
        self._hang(one, other, pair)

    def _way(self, node: _Node) -> list[_Node]:
        """The nodes from here to the root."""
        way = [node]
        while way[-1] in self.parent:
            way.append(self.parent[way[-1]][0])
        return way

    def _hang(self, one: _Node, other: _Node, pair: int) -> None:
        """Make one node the root of its tree, and hang it on the other."""
        way = self._way(one)
        links = [(child, *self.parent.pop(child)) for child in way[:-1]]
        for child, above, link in links:
            self.parent[above] = (child, link)
        self.parent[one] = (other, pair)

    def _empty_one(self, cycle: list[int]) -> int:
        """Hand rows around a cycle, the way that moves fewer, until a pair has none; that pair."""
        even, odd = cycle[::2], cycle[1::2]
        losers, winners = min(((even, odd), (odd, even)), key=lambda sides: min(self.rows[pair] for pair in sides[0]))
        emptied = min(losers, key=lambda pair: (self.rows[pair], pair))
        moved = self.rows[emptied]
        for pair in losers:
            self.rows[pair] -= moved
        for pair in winners:
            self.rows[pair] += moved
        self.rows[emptied] = 0.0
        self.emptied.append(emptied)
        return emptied
