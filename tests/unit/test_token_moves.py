"""Tokens are halved, doubled, and changed one by one while the tail is evened out."""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skewless.errors import PlanError
from skewless.planner.placement.ring_changes import (
    _BLOCK,
    _Places,
    doubled,
    doubling_rounds,
    evened,
    halved,
    halving_rounds,
    overloaded,
)
from skewless.routing.ring import Ring

#: Tokens of reducers that need not be numbered without gaps.
TOKENS = st.dictionaries(st.integers(0, 40), st.integers(1, 30), min_size=1, max_size=8)
POWERS = st.dictionaries(st.integers(0, 40), st.sampled_from([1, 2, 4, 8, 16]), min_size=1, max_size=8)
BITS = st.integers(4, 10)


@pytest.mark.parametrize(
    ("queues", "expected"),
    [
        ([], None), ([7], None), ([0, 0, 0], None), ([5, 5], None), ([3, 5, 5], None), ([0, 0, 1], 2),
        ([10, 12], None), ([10, 13], 1), ([13, 10, 13], None), ([1, 60, 49, 2], 1),
    ],
    ids=[
        "no reducer", "one reducer", "nothing queued", "a tie", "a tie of the longest", "all others are idle",
        "at the threshold", "above the threshold", "a tie apart", "many reducers",
    ],
)  # fmt: skip
def test_a_reducer_is_overloaded_above_the_threshold_over_the_second(queues: list[int], expected: int | None) -> None:
    assert overloaded(queues, 0.2) == expected


@given(POWERS, BITS, st.data())
def test_halving_moves_slots_only_away_from_the_reducer(tokens: dict[int, int], bits: int, data: st.DataObject) -> None:
    ring, reducer = Ring(ring_bits=bits, tokens=tokens), data.draw(st.sampled_from(sorted(tokens)))
    after = halved(ring, reducer)
    if after is None:
        assert tokens[reducer] == 1
        return
    assert after.tokens == {**ring.tokens, reducer: tokens[reducer] // 2}
    assert after.ring_bits == bits
    assert set(ring.slot_owners[ring.slot_owners != after.slot_owners]) <= {reducer}


@given(TOKENS, BITS, st.data())
def test_doubling_moves_no_slot_to_the_reducer(tokens: dict[int, int], bits: int, data: st.DataObject) -> None:
    ring, reducer = Ring(ring_bits=bits, tokens=tokens), data.draw(st.sampled_from(sorted(tokens)))
    after = doubled(ring, reducer, 1024)
    if after is None:
        assert len(tokens) == 1
        return
    assert after.tokens == {other: count * (1 if other == reducer else 2) for other, count in ring.tokens.items()}
    assert after.ring_bits == bits
    assert reducer not in after.slot_owners[ring.slot_owners != after.slot_owners]


@pytest.mark.parametrize(
    ("tokens", "reducer", "limit"),
    [({3: 1}, 3, 64), ({0: 1, 1: 4}, 0, 7), ({0: 4, 1: 1, 2: 3}, 1, 7)],
    ids=["nobody else", "the other passes the limit", "one of the others passes it"],
)
def test_there_is_no_doubling_where(tokens: dict[int, int], reducer: int, limit: int) -> None:
    assert doubled(Ring(tokens=tokens), reducer, limit) is None


def test_doubling_may_reach_the_limit_and_asks_it_only_of_those_it_doubles() -> None:
    after = doubled(Ring(tokens={0: 64, 1: 4}), 0, 8)
    assert after is not None
    assert after.tokens == {0: 64, 1: 8}


def moves(reducers: int) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(0, reducers - 1), max_size=8)


@given(st.integers(1, 6).flatmap(lambda reducers: st.tuples(st.just(reducers), moves(reducers))))
def test_halvings_are_read_off_the_ring_in_whatever_order_they_were_done(done: tuple[int, Sequence[int]]) -> None:
    reducers, order = done
    ring = Ring.even(reducers, 256)
    for reducer in order:
        ring = halved(ring, reducer) or ring
    asked = Counter(order)
    assert [halving_rounds(ring, 256, one) for one in range(reducers)] == [asked[one] for one in range(reducers)]


@given(st.integers(2, 6).flatmap(lambda reducers: st.tuples(st.just(reducers), moves(reducers))))
def test_doublings_are_read_off_the_ring_in_whatever_order_they_were_done(done: tuple[int, Sequence[int]]) -> None:
    reducers, order = done
    for initial in (1, 8):
        ring = Ring.even(reducers, initial)
        for reducer in order:
            ring = doubled(ring, reducer, 256 * initial) or ring
        asked = Counter(order)
        found = [doubling_rounds(ring, initial, one) for one in range(reducers)]
        assert found == [asked[one] for one in range(reducers)]


def halvings(tokens: dict[int, int], reducer: int) -> int:
    return halving_rounds(Ring(tokens=tokens), 8, reducer)


def doublings(tokens: dict[int, int], reducer: int) -> int:
    return doubling_rounds(Ring(tokens=tokens), 1, reducer)


@pytest.mark.parametrize(
    ("rounds", "tokens", "reducer", "sentence"),
    [
        pytest.param(halvings, {0: 6, 1: 8}, 0, "a power of two", id="halved no power of two"),
        pytest.param(halvings, {0: 16, 1: 8}, 0, "halved or not", id="more than at first"),
        pytest.param(halvings, {0: 8, 1: 8}, 2, "on the ring", id="no such reducer to halve"),
        pytest.param(doublings, {0: 3, 1: 2}, 0, "a power of two", id="doubled no power of two"),
        pytest.param(doublings, {0: 1, 1: 2, 2: 1}, 0, "from 1 each", id="a broken round"),
        pytest.param(doublings, {0: 8, 1: 1, 2: 1, 3: 1}, 0, "from 1 each", id="too many of one"),
        pytest.param(doublings, {0: 2}, 0, "from 1 each", id="alone with two"),
        pytest.param(doublings, {0: 1, 1: 2}, 2, "on the ring", id="no such reducer to double"),
    ],
)
def test_rounds_are_not_read_off_a_ring_that_they_cannot_give(
    rounds: Callable[[dict[int, int], int], int], tokens: dict[int, int], reducer: int, sentence: str
) -> None:
    with pytest.raises(PlanError, match=sentence):
        rounds(tokens, reducer)


def test_rounds_at_the_ends_of_what_there_is() -> None:
    assert halved(Ring(tokens={0: 1, 1: 8}), 0) is None
    assert doublings({5: 1}, 5) == 0, "a reducer alone was never doubled for"
    with pytest.raises(PlanError, match="a power of two"):
        halved(Ring(tokens={0: 6}), 0)


# Tokens that are changed one by one while the tail is evened out.


def test_places_in_blocks_have_the_neighbours_that_they_have_in_one_list() -> None:
    random = np.random.default_rng(4)
    ordered = sorted(set(random.integers(0, 1 << 52, 3 * _BLOCK).tolist()))
    places = _Places(np.array(ordered))
    for number in range(4000):
        # First whole blocks are emptied, then places come back anywhere.
        if number < 2 * _BLOCK or (number % 3 and len(ordered) > 1):
            at = _BLOCK // 2 if len(ordered) > _BLOCK else int(random.integers(len(ordered)))
            gone = ordered.pop(at)
            assert places.remove(gone) == (ordered[at - 1], ordered[at % len(ordered)])
        else:
            come = int(random.integers(0, 1 << 52))
            at = bisect.bisect_left(ordered, come)
            assert places.add(come) == (ordered[at - 1], ordered[at % len(ordered)])
            ordered.insert(at, come)
        assert len(places) == len(ordered)


def test_rows_of_the_tail_come_to_be_spread_more_evenly() -> None:
    ring = Ring.even(64, 64)
    rows = np.random.default_rng(5).poisson(3.0, 1 << ring.ring_bits).astype(float)

    def largest(one: Ring) -> float:
        return float(np.bincount(one.slot_owners, weights=rows).max() / rows.sum() * 64)

    after = evened(ring, rows)
    assert largest(after) < 1.0 + (largest(ring) - 1.0) / 4
