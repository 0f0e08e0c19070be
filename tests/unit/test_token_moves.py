"""Tokens are halved, doubled, and changed one by one while the tail is evened out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from skewless.planner.placement.ring_changes import doubled, doubling_rounds, evened, halved, halving_rounds
from skewless.routing.ring import Ring

#: Tokens of reducers that need not be numbered without gaps.
TOKENS = st.dictionaries(st.integers(0, 40), st.integers(1, 30), min_size=1, max_size=8)
POWERS = st.dictionaries(st.integers(0, 40), st.sampled_from([1, 2, 4, 8, 16]), min_size=1, max_size=8)
BITS = st.integers(4, 10)


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


# Tokens that are changed one by one while the tail is evened out.


def test_rows_of_the_tail_come_to_be_spread_more_evenly() -> None:
    ring = Ring.even(64, 64)
    rows = np.random.default_rng(5).poisson(3.0, 1 << ring.ring_bits).astype(float)

    def largest(one: Ring) -> float:
        return float(np.bincount(one.slot_owners, weights=rows).max() / rows.sum() * 64)

    after = evened(ring, rows)
    assert largest(after) < 1.0 + (largest(ring) - 1.0) / 4
