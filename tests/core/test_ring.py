from __future__ import annotations

import mmh3
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from skewless.hashing import key_hash
from skewless.ring import Ring

TOKENS = st.dictionaries(st.integers(0, 40), st.integers(1, 30), min_size=1, max_size=8)


@given(TOKENS, st.integers(4, 8))
def test_a_slot_belongs_to_the_first_token_clockwise_of_its_start(tokens: dict[int, int], bits: int) -> None:
    ring = Ring(ring_bits=bits, tokens=tokens)
    placed = sorted(
        (mmh3.hash(f"token-{reducer}-{j}".encode(), 42, signed=False), reducer)
        for reducer, count in tokens.items()
        for j in range(count)
    )
    for slot, owner in enumerate(ring.slot_owners):
        start = slot << (32 - bits)
        assert owner == next((reducer for at, reducer in placed if at >= start), placed[0][1])


@given(TOKENS, st.integers(0, 41), st.integers(1, 30))
def test_adding_a_reducer_moves_slots_only_to_it(tokens: dict[int, int], new: int, count: int) -> None:
    tokens.pop(new, None)
    if not tokens:
        return
    before, after = Ring(tokens=tokens).slot_owners, Ring(tokens={**tokens, new: count}).slot_owners
    assert set(after[before != after]) <= {new}


@given(TOKENS, st.data())
def test_taking_tokens_from_a_reducer_moves_slots_only_away_from_it(
    tokens: dict[int, int], data: st.DataObject
) -> None:
    poorer = data.draw(st.sampled_from(sorted(tokens)))
    left = data.draw(st.integers(1, tokens[poorer]))
    before, after = Ring(tokens=tokens).slot_owners, Ring(tokens={**tokens, poorer: left}).slot_owners
    assert set(before[before != after]) <= {poorer}


@given(TOKENS, st.data(), st.integers(4, 16))
def test_removing_a_reducer_moves_only_its_own_slots(tokens: dict[int, int], data: st.DataObject, bits: int) -> None:
    gone = data.draw(st.sampled_from(sorted(tokens)))
    others = {reducer: count for reducer, count in tokens.items() if reducer != gone}
    if not others:
        return
    before = Ring(ring_bits=bits, tokens=tokens).slot_owners
    after = Ring(ring_bits=bits, tokens=others).slot_owners
    assert np.array_equal(before != after, before == gone)
    assert gone not in after


@given(TOKENS, st.data(), st.integers(1, 30), st.integers(4, 16))
def test_adding_tokens_to_a_reducer_moves_slots_only_to_it(
    tokens: dict[int, int], data: st.DataObject, more: int, bits: int
) -> None:
    richer = data.draw(st.sampled_from(sorted(tokens)))
    before = Ring(ring_bits=bits, tokens=tokens).slot_owners
    after = Ring(ring_bits=bits, tokens={**tokens, richer: tokens[richer] + more}).slot_owners
    assert set(after[before != after]) <= {richer}
    assert richer not in before[before != after]


@given(TOKENS, st.integers(4, 16))
def test_every_slot_has_exactly_one_owner_and_it_is_on_the_ring(tokens: dict[int, int], bits: int) -> None:
    ring = Ring(ring_bits=bits, tokens=tokens)
    owned = sum((ring.slot_owners == reducer).astype(int) for reducer in ring.reducers)
    assert ring.slot_owners.shape == (1 << bits,)
    assert np.array_equal(owned, np.ones(1 << bits))


@given(TOKENS, st.text(st.characters(exclude_categories=["Cs"])), st.integers(4, 16))
def test_the_owner_of_a_key_is_that_of_its_slot(tokens: dict[int, int], key: str, bits: int) -> None:
    ring = Ring(ring_bits=bits, tokens=tokens)
    assert 0 <= ring.slot_of(key) < 1 << bits
    assert ring.owner_of(key) == ring.slot_owners[ring.slot_of(key)]
    assert ring.owner_of(key) in ring.reducers


@given(TOKENS)
def test_every_slot_has_an_owner_on_the_ring_and_the_order_of_reducers_is_no_matter(tokens: dict[int, int]) -> None:
    ring = Ring(tokens=tokens)
    assert len(ring.slot_owners) == 4096
    assert set(ring.slot_owners) <= set(tokens)
    assert np.array_equal(ring.slot_owners, Ring(tokens=dict(reversed(tokens.items()))).slot_owners)


def test_reducers_are_in_order_however_they_were_given() -> None:
    """Their order is that of the tasks' indexes, and so of the Spark partitions."""
    ring = Ring(tokens={7: 2, 0: 3, 3: 1})
    assert ring.reducers == (0, 3, 7)
    assert ring.model_dump_json() == Ring(tokens={0: 3, 3: 1, 7: 2}).model_dump_json()


def test_a_token_at_the_very_start_of_a_slot_has_it() -> None:
    start = 0x6813
    assert mmh3.hash(b"token-3994-0", 42, signed=False) == start << 16
    owners = Ring(ring_bits=16, tokens={0: 8, 3994: 1}).slot_owners
    assert owners[start] == 3994
    assert owners[start + 1] == 0


def test_an_even_ring_of_64_tokens_is_known() -> None:
    ring = Ring.even(8, 64)
    assert ring.reducers == tuple(range(8))
    assert np.bincount(ring.slot_owners).sum() == 4096
    assert ring.slot_of("self") == key_hash("self") >> 20 == 3606
    assert ring.owner_of("self") == ring.slot_owners[3606]


def test_a_ring_cannot_be_changed() -> None:
    ring = Ring.even(2, 4)
    with pytest.raises(ValueError, match="read-only"):
        ring.slot_owners[0] = 1
    with pytest.raises(ValidationError, match="frozen"):
        ring.ring_bits = 5


@pytest.mark.parametrize("tokens", [{}, {0: 0}, {-1: 3}], ids=["nobody", "no token", "negative reducer"])
def test_a_ring_without_owners_is_refused(tokens: dict[int, int]) -> None:
    with pytest.raises(ValidationError, match="at least one reducer"):
        Ring(tokens=tokens)
