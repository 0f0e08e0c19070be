"""Evening out the tail by tokens: a few more for reducers with little, a few less for those with much."""

from __future__ import annotations

import bisect
from collections.abc import Callable
from typing import NamedTuple

import mmh3
import numpy as np

from skewless.planner.placement.placement import Rows
from skewless.routing.hashing import KEY_SEED
from skewless.routing.ring import Ring

#: Passes over all reducers, at most, and tokens shifted in memory to insert others, at most, so that a call stays well
#: below a second. What is still uneven then is left to the head.
PASSES = 32
MOST_MOVES = 500_000_000
#: With fewer rows than this per reducer the unevenness of the tail is noise.
ROWS_PER_REDUCER = 30
#: Tokens that one reducer gives or takes in a row, to see whether that helps.
LOOK_AHEAD = 12


def evened(ring: Ring, slot_rows: Rows, fixed: Rows | None = None) -> Ring:
    """The ring with token counts changed one by one as long as that makes the reducers' rows more even.

    Descent on the sum of squares of the reducers' rows, one token at a time: the fullest reducer
    gives its last token away, or the emptiest one gets another; then the next fullest and the next
    emptiest, and so on. It ends when no reducer has a change that helps.

    Args:
        ring: as it is.
        slot_rows: rows of each slot, shape ``(2**ring_bits,)``.
        fixed: rows that each reducer has beside those of its slots, shape ``(reducers,)``; none by default.
    """
    if float(slot_rows.sum()) < ROWS_PER_REDUCER * len(ring.tokens):
        return ring
    search = _Search(ring, slot_rows, np.zeros(len(ring.tokens)) if fixed is None else fixed)
    for _ in range(PASSES):
        if not search.go_through():
            break
    return ring if search.tokens == ring.tokens else Ring(ring_bits=ring.ring_bits, tokens=search.tokens)


class _Search:
    """Tokens on the ring, sorted, each with the rows of its arc."""

    def __init__(self, ring: Ring, slot_rows: Rows, fixed: Rows) -> None:
        self.bits = ring.ring_bits
        self.tokens = dict(ring.tokens)
        self.sums = np.concatenate([[0.0], np.cumsum(slot_rows)])
        self.total = float(self.sums[-1])
        hashes, owners = ring.places
        self.places = list(zip(hashes.tolist(), owners.tolist(), strict=True))
        upto = self.sums[(hashes >> (32 - self.bits)) + 1]
        # What lies after the last token is the first one's.
        by_reducer = np.bincount(owners, weights=np.diff(upto, prepend=upto[-1] - self.total))
        beside = zip(self.tokens, fixed.tolist(), strict=True)
        self.rows = {reducer: float(by_reducer[reducer]) + rows for reducer, rows in beside}
        self.changes = 0
        self.tries = 0

    def _arc(self, after: int, upto: int) -> float:
        """Rows of the slots that start after one hash and up to another, clockwise.

        A ring of one token has all of them.
        """
        if upto == after:
            return self.total if len(self.places) == 1 else 0.0
        low, high = self._slots(after), self._slots(upto)
        rows = float(self.sums[high] - self.sums[low])
        return rows if upto > after else rows + self.total

    def _slots(self, token: int) -> int:
        """Slots whose start is at or before a hash."""
        return (token >> (32 - self.bits)) + 1

    def go_through(self) -> bool:
        """Let every reducer give or take a few tokens where that helps; false if it helped nowhere."""
        order = sorted(self.rows, key=lambda reducer: (-self.rows[reducer], reducer))
        before = self.changes
        for full, empty in zip(order, reversed(order), strict=True):
            if self.tries * len(self.places) >= MOST_MOVES:
                return False
            if not self._try(full, self._give):
                self._try(empty, self._take)
        return self.changes > before

    def _try(self, reducer: int, change: Callable[[int], _Change | None]) -> bool:
        """Make up to so many changes of one kind, and keep as many of them as help most.

        One token alone may do harm, as its rows go wherever the ring says, and the next one good.
        """
        made: list[_Change] = []
        best, kept, gained = -1e-9 * self.total**2, 0, 0.0
        while len(made) < LOOK_AHEAD:
            done = change(reducer)
            if done is None:
                break
            made.append(done)
            self.tries += 1
            gained += done.squares
            if gained < best:
                best, kept = gained, len(made)
        for undone in reversed(made[kept:]):
            self._undo(undone)
        self.changes += kept
        return kept > 0

    def _give(self, reducer: int) -> _Change | None:
        """Remove a reducer's last token: its rows go to the next one clockwise."""
        if self.tokens[reducer] == 1:
            return None
        place = (_hash(reducer, self.tokens[reducer] - 1), reducer)
        at = bisect.bisect_left(self.places, place)
        after = self.places[(at + 1) % len(self.places)][1]
        rows = self._arc(self.places[at - 1][0], place[0])
        self.places.pop(at)
        self.tokens[reducer] -= 1
        return self._move(reducer, after, rows, place, added=False)

    def _take(self, reducer: int) -> _Change | None:
        """Add a token for a reducer: it takes rows from the next one clockwise."""
        place = (_hash(reducer, self.tokens[reducer]), reducer)
        at = bisect.bisect_left(self.places, place)
        owner = self.places[at % len(self.places)][1]
        rows = self._arc(self.places[at - 1][0], place[0])
        self.places.insert(at, place)
        self.tokens[reducer] += 1
        return self._move(owner, reducer, rows, place, added=True)

    def _move(self, giver: int, taker: int, rows: float, place: tuple[int, int], added: bool) -> _Change:
        squares = 0.0
        if giver != taker:
            squares = 2.0 * rows * (self.rows[taker] - self.rows[giver] + rows)
            self.rows[giver] -= rows
            self.rows[taker] += rows
        return _Change(giver, taker, rows, place, added, squares)

    def _undo(self, change: _Change) -> None:
        reducer = change.place[1]
        if change.added:
            self.places.pop(bisect.bisect_left(self.places, change.place))
        else:
            bisect.insort(self.places, change.place)
        self.tokens[reducer] += -1 if change.added else 1
        if change.giver != change.taker:
            self.rows[change.giver] += change.rows
            self.rows[change.taker] -= change.rows


class _Change(NamedTuple):
    """One token more or less: who gave how many rows to whom, and by how much the sum of squares grew."""

    giver: int
    taker: int
    rows: float
    place: tuple[int, int]
    added: bool
    squares: float


def _hash(reducer: int, number: int) -> int:
    return mmh3.hash(b"token-%d-%d" % (reducer, number), KEY_SEED, signed=False)
