"""Changes of the ring: tokens that move, by the DPA load balancer's rule or to even out the tail, and key buckets.

A reducer that is overloaded is relieved by changing how many tokens the reducers hold on the
ring: halving takes half of its own away, doubling doubles those of all others (DPA load balancer,
sections 4.1 and 4.2). A ring shows how often each was done, so that nobody has to keep count.

SEP-32 doubles and halves the elasticity factor of a reducer. A bucket is a hash of the key, so this moves keys that
nobody has named, which a reducer of the ring cannot do without changing its tokens.
"""

import bisect
import heapq
from collections.abc import Callable, Sequence
from typing import NamedTuple

import mmh3
import numpy as np

from skewless.planner.placement.placement import Indices, Rows
from skewless.routing.hashing import KEY_SEED
from skewless.routing.plan import RoutingPlan
from skewless.routing.ring import LARGEST_RING, MOST_BUCKETS, REDUCER_BITS, REDUCERS_END, Ring, VirtualTask, token_order

#: Passes over all reducers, at most, and tokens shifted in memory to insert others, at most, so that a call stays well
#: below a second. What is still uneven then is left to the head.
PASSES = 32
MOST_MOVES = 500_000_000
#: With fewer rows than this per reducer the unevenness of the tail is noise.
ROWS_PER_REDUCER = 30
#: Tokens that one reducer gives or takes in a row, to see whether that helps.
LOOK_AHEAD = 12
#: Tokens of a block, which are moved in memory for each one that is inserted.
_BLOCK = 1000
#: The part of a token's place that is its reducer.
_REDUCER = REDUCERS_END - 1


def evened(ring: Ring, slot_rows: Rows, fixed: Rows | None = None, room: Rows | None = None) -> Ring:
    """The ring with token counts changed one by one as long as that makes the reducers' rows more even.

    Descent on the sum of squares of the reducers' rows, one token at a time: the fullest reducer
    gives its last token away, or the emptiest one gets another; then the next fullest and the next
    emptiest, and so on. It ends when no reducer has a change that helps.

    ``slot_rows`` are the rows of each slot; ``fixed`` those that each reducer has beside its slots, none by default;
    ``room`` says what each reducer can take beside the others, which is as much by default.
    """
    if float(slot_rows.sum()) < ROWS_PER_REDUCER * len(ring.tokens):
        return ring
    even = np.ones(len(ring.tokens))
    search = _Search(ring, slot_rows, 0.0 * even if fixed is None else fixed, even if room is None else room)
    for _ in range(PASSES):
        if not search.go_through():
            break
    return ring if search.tokens == ring.tokens else ring.with_tokens(search.tokens)


class _Search:
    """Tokens on the ring, sorted, each with the rows of its arc."""

    def __init__(self, ring: Ring, slot_rows: Rows, fixed: Rows, room: Rows) -> None:
        self.bits = ring.ring_bits
        self.tokens = dict(ring.tokens)
        self.room = dict(zip(self.tokens, room.tolist(), strict=True))
        self.sums = np.zeros(len(slot_rows) + 1)
        np.cumsum(slot_rows, out=self.sums[1:])
        self.total = float(self.sums[-1])
        hashes, owners = ring.places
        self.places = _Places(token_order(hashes, owners))
        upto = self.sums[(hashes >> (32 - self.bits)) + 1]
        # What lies after the last token is the first one's.
        by_reducer = np.bincount(owners, weights=np.diff(upto, prepend=upto[-1] - self.total))
        beside = zip(self.tokens, fixed.tolist(), strict=True)
        self.rows = {reducer: float(by_reducer[reducer]) + rows for reducer, rows in beside}
        self.changes = 0
        self.tries = 0

    def _arc(self, after: int, upto: int, tokens: int) -> float:
        """Rows of the slots that start after one hash and up to another, clockwise: all, on a ring of one token."""
        if upto == after:
            return self.total if tokens == 1 else 0.0
        low, high = self._slots(after), self._slots(upto)
        rows = float(self.sums[high] - self.sums[low])
        return rows if upto > after else rows + self.total

    def _slots(self, token: int) -> int:
        return (token >> (32 - self.bits)) + 1

    def go_through(self) -> bool:
        """Let every reducer give or take a few tokens where that helps; false if it helped nowhere."""
        rows, room = (np.array(list(one.values())) for one in (self.rows, self.room))
        order = np.array(list(self.rows))[np.argsort(-rows / room, kind="stable")].tolist()
        before = self.changes
        for full, empty in zip(order, reversed(order), strict=True):
            if self.tries * len(self.places) >= MOST_MOVES:
                return False
            if not self._try(full, self._give):
                self._try(empty, self._take)
        return self.changes > before

    def _try(self, reducer: int, change: Callable[[int], "_Change | None"]) -> bool:
        """Make so many changes, and keep as many as help most: one alone may do harm, and the next one good."""
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

    def _give(self, reducer: int) -> "_Change | None":
        if self.tokens[reducer] == 1:
            return None
        place = _place(reducer, self.tokens[reducer] - 1)
        before, after = self.places.remove(place)
        rows = self._arc(before >> REDUCER_BITS, place >> REDUCER_BITS, len(self.places) + 1)
        self.tokens[reducer] -= 1
        return self._move(reducer, after & _REDUCER, rows, place, added=False)

    def _take(self, reducer: int) -> "_Change | None":
        place = _place(reducer, self.tokens[reducer])
        before, after = self.places.add(place)
        rows = self._arc(before >> REDUCER_BITS, place >> REDUCER_BITS, len(self.places) - 1)
        self.tokens[reducer] += 1
        return self._move(after & _REDUCER, reducer, rows, place, added=True)

    def _move(self, giver: int, taker: int, rows: float, place: int, added: bool) -> "_Change":
        squares = 0.0
        if giver != taker:
            to, of = self.room[taker], self.room[giver]
            squares = rows * ((2.0 * self.rows[taker] + rows) / to - (2.0 * self.rows[giver] - rows) / of)
            self.rows[giver] -= rows
            self.rows[taker] += rows
        return _Change(giver, taker, rows, place, added, squares)

    def _undo(self, change: "_Change") -> None:
        reducer = change.place & _REDUCER
        if change.added:
            self.places.remove(change.place)
        else:
            self.places.add(change.place)
        self.tokens[reducer] += -1 if change.added else 1
        if change.giver != change.taker:
            self.rows[change.giver] += change.rows
            self.rows[change.taker] -= change.rows


class _Change(NamedTuple):
    """One token more or less: who gave how many rows to whom, and by how much the sum of squares grew."""

    giver: int
    taker: int
    rows: float
    place: int
    added: bool
    squares: float


class _Places:
    """The places of tokens (``skewless.routing.ring.token_order``) clockwise, in blocks: few are moved in memory."""

    def __init__(self, places: Indices) -> None:
        self.count = len(places)
        self.blocks: list[Indices | list[int]] = [places[at : at + _BLOCK] for at in range(0, len(places), _BLOCK)]
        #: No place of a block is below its floor, but in the first one, and none is at or above the next block's.
        self.floors: list[int] = places[::_BLOCK].tolist()

    def __len__(self) -> int:
        return self.count

    def add(self, place: int) -> tuple[int, int]:
        number, at, block = self._find(place)
        beside = self._before(number, at), self._from(number, at)
        block.insert(at, place)
        self.count += 1
        return beside

    def remove(self, place: int) -> tuple[int, int]:
        """Remove a place that is there; the places before and after it, clockwise; itself where there is no other."""
        number, at, block = self._find(place)
        beside = self._before(number, at), self._from(number, at + 1)
        block.pop(at)
        self.count -= 1
        return beside

    def _find(self, place: int) -> tuple[int, int, list[int]]:
        number = max(0, bisect.bisect_right(self.floors, place) - 1)
        block = self.blocks[number]
        self.blocks[number] = block = block if isinstance(block, list) else block.tolist()
        return number, bisect.bisect_left(block, place), block

    def _before(self, number: int, at: int) -> int:
        while not at:
            number -= 1
            at = len(self.blocks[number])
        return int(self.blocks[number][at - 1])

    def _from(self, number: int, at: int) -> int:
        while at == len(self.blocks[number]):
            number, at = (number + 1) % len(self.blocks), 0
        return int(self.blocks[number][at])


def _place(reducer: int, number: int) -> int:
    return mmh3.hash(b"token-%d-%d" % (reducer, number), KEY_SEED, signed=False) << REDUCER_BITS | reducer


#: One reducer is relieved so often: a halved one has a sixteenth of its tokens left then.
MOST_ROUNDS = 4


def overloaded(queues: Sequence[float], threshold: float) -> int | None:
    """The index of the reducer that is overloaded, if there is one: ``Qmax > Qs (1 + threshold)``.

    DPA load balancer, section 4.1, formula 1: the longest queue, if it is longer than the second longest by more than
    the threshold (the paper's tau). Of two longest none is overloaded, and one reducer alone never is.
    """
    if len(queues) < 2:
        return None
    longest = max(range(len(queues)), key=queues.__getitem__)
    second = max(queue for reducer, queue in enumerate(queues) if reducer != longest)
    return longest if queues[longest] > second * (1.0 + threshold) else None


def overloaded_reducer(tasks: Sequence[VirtualTask], loads: Rows, threshold: float) -> int | None:
    """The reducer whose tasks together are overloaded, if there is one."""
    first = [at for at, task in enumerate(tasks) if task.bucket == 0]
    found = overloaded(np.add.reduceat(loads, first).tolist(), threshold)
    return None if found is None else tasks[first[found]].reducer


def halved(ring: Ring, reducer: int) -> Ring | None:
    """Take the upper half of its tokens from a reducer; slots move only away from it. None if it has one token left.

    DPA load balancer, section 4.2, token halving. The number of its tokens is a power of two.
    """
    tokens = ring.tokens[reducer]
    return None if tokens == 1 else ring.with_tokens({**ring.tokens, reducer: tokens // 2})


def doubled(ring: Ring, reducer: int, limit: int) -> Ring | None:
    """Double the tokens of everyone but an overloaded reducer; no slot moves to it.

    DPA load balancer, section 4.2, token doubling. None where a reducer would hold more than the limit, or is alone.
    """
    tokens = {other: count if other == reducer else 2 * count for other, count in ring.tokens.items()}
    if len(tokens) == 1 or sum(tokens.values()) > LARGEST_RING:
        return None
    if any(count > limit for other, count in tokens.items() if other != reducer):
        return None
    return ring.with_tokens(tokens)


def halving_rounds(ring: Ring, initial_tokens: int, reducer: int) -> int:
    """How often a reducer was halved, where all began with the same tokens, a power of two."""
    return initial_tokens.bit_length() - ring.tokens[reducer].bit_length()


def doubling_rounds(ring: Ring, initial_tokens: int, reducer: int) -> int:
    """How often all others were doubled for a reducer, where all began with the same tokens, a power of two.

    With n_i rounds for reducer i and N for all of them, reducer j holds ``2**(N - n_j)`` times its first tokens. So the
    logarithms of these factors add up to ``(R - 1) N``, which gives N, and then n_j.
    """
    began = initial_tokens.bit_length()
    logs = {other: count.bit_length() - began for other, count in ring.tokens.items()}
    return sum(logs.values()) // max(1, len(logs) - 1) - logs[reducer]


#: Merged siblings must fit into this part of what one task should hold, so that no split is undone at once.
HYSTERESIS = 0.5


def for_free_slots(plan: RoutingPlan, tail: Rows, free: int) -> dict[int, int]:
    """Factors above 1 where the reducers with the most tail are split, until as few as can be of the slots are free."""
    factors = {reducer: plan.factors.get(reducer, 1) for reducer in plan.ring.reducers}
    rows = np.bincount(plan.task_table[:, 0], weights=tail).tolist()
    fullest_first = [(-rows[reducer] / factor, reducer) for reducer, factor in factors.items()]
    heapq.heapify(fullest_first)
    while fullest_first:
        _, reducer = heapq.heappop(fullest_first)
        factor = factors[reducer]
        # Neither limit will ever be wider: a reducer that cannot be split now will not be split later.
        if factor <= free and 2 * factor <= MOST_BUCKETS:
            free -= factor
            factors[reducer] = 2 * factor
            heapq.heappush(fullest_first, (-rows[reducer] / (2 * factor), reducer))
    return _above_one(factors)


def for_full_tasks(plan: RoutingPlan, tail: Rows, most: float) -> dict[int, int]:
    """Factors above 1 where each reducer with a task whose tail is above ``most`` has twice as many buckets."""
    full = np.unique(plan.task_table[tail > most, 0]).tolist()
    return _above_one({**plan.factors, **{one: min(MOST_BUCKETS, 2 * plan.factors.get(one, 1)) for one in full}})


def for_small_tasks(plan: RoutingPlan, tail: Rows, most: float) -> dict[int, int]:
    """Factors above 1 where buckets are merged as long as the tail of each that comes of two is at most ``most``."""
    reducers = plan.task_table[:, 0]
    factors = {}
    for reducer, factor in plan.factors.items():
        start, left = int(np.searchsorted(reducers, reducer)), factor
        rows = tail[start : start + factor]
        while left > 1 and float((rows[: left // 2] + rows[left // 2 :]).max()) <= most:
            left //= 2
            rows = rows[:left] + rows[left:]
        factors[reducer] = left
    return _above_one(factors)


def _above_one(factors: dict[int, int]) -> dict[int, int]:
    return {reducer: factor for reducer, factor in sorted(factors.items()) if factor > 1}
