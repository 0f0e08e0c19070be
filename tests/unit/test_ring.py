from __future__ import annotations

from pathlib import Path
from typing import Any

import mmh3
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from skewless.documents.decision import Decision
from skewless.errors import SpecError
from skewless.planner.first_plan import first_plan, first_ring
from skewless.planner.planner import plan_next_stage
from skewless.routing.plan import RoutingPlan, cut_waves
from skewless.routing.ring import USUAL_RING_BITS, Ring, ring_bits_for, token_hashes
from skewless.spec.routing import Policy, Routing
from tests.tiers import mostly_long
from tests.unit import synthetic

DOCS = Path(__file__).parents[2] / "docs"
FEWER, OR_MORE_TOKENS = "take fewer reducers", "or give each more tokens"
OF_THE_FINEST = "that own none of its 1,048,576"

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


@given(TOKENS, st.integers(0, 41), st.integers(0, 30), st.integers(4, 16))
def test_slots_move_only_to_a_reducer_with_more_tokens_or_away_from_one_with_fewer(
    tokens: dict[int, int], reducer: int, count: int, bits: int
) -> None:
    """Also where a reducer comes or goes."""
    changed = {one: tokens_of for one, tokens_of in {**tokens, reducer: count}.items() if tokens_of}
    if not changed:
        return
    before, after = (Ring(ring_bits=bits, tokens=one).slot_owners for one in (tokens, changed))
    richer, poorer = (after, before) if count > tokens.get(reducer, 0) else (before, after)
    assert set(richer[before != after]) <= {reducer}
    assert reducer not in poorer[before != after]
    assert set(after) <= set(changed)


@given(TOKENS, st.text(st.characters(exclude_categories=["Cs"])), st.integers(4, 16))
def test_the_owner_of_a_key_is_that_of_its_slot(tokens: dict[int, int], key: str, bits: int) -> None:
    ring = Ring(ring_bits=bits, tokens=tokens)
    assert 0 <= ring.slot_of(key) < 1 << bits
    assert ring.slot_owners[ring.slot_of(key)] in ring.reducers


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


@given(st.lists(st.tuples(st.integers(0, (1 << 20) - 1), st.integers(0, (1 << 23) - 1)), min_size=1, max_size=40))
def test_tokens_hashed_all_at_once_lie_where_they_lie_one_by_one(tokens: list[tuple[int, int]]) -> None:
    found = token_hashes(*np.array(tokens, dtype=np.int64).T)
    assert found.tolist() == [mmh3.hash(f"token-{one}-{j}".encode(), 42, signed=False) for one, j in tokens]


@given(TOKENS, st.integers(4, 12))
def test_an_empty_reducer_is_one_that_is_nowhere_among_the_owners(tokens: dict[int, int], bits: int) -> None:
    ring = Ring(ring_bits=bits, tokens=tokens)
    assert ring.empty_reducers == set(tokens) - set(ring.slot_owners.tolist())


@pytest.mark.parametrize(
    ("reducers", "tokens", "bits"),
    mostly_long(
        [(8, 64, 12), (64, 64, 12), (65, 64, 13), (1000, 64, 16), (5000, 64, 19), (10_000, 64, 20), (500, 1, 17)],
        (8, 64, 12),
        (65, 64, 13),
        (1000, 64, 16),
        (500, 1, 17),
    ),
)
def test_a_ring_has_as_many_slots_as_tokens_and_no_reducer_without_one(reducers: int, tokens: int, bits: int) -> None:
    assert ring_bits_for(reducers, tokens) == bits
    ring = first_ring(Routing(reducers=reducers, tokens=tokens))
    assert ring == Ring.even(reducers, tokens, bits)
    assert not ring.empty_reducers
    if bits > USUAL_RING_BITS and 1 << (bits - 1) >= reducers * tokens:
        assert Ring.even(reducers, tokens, bits - 1).empty_reducers, "a coarser ring would do"


def test_a_ring_is_fine_enough_for_every_reducer_that_may_be_added() -> None:
    ring = first_ring(Routing(reducers=8, policy=Policy(name="adaptive", reducer_range=(8, 5000))))
    assert (len(ring.tokens), ring.ring_bits) == (8, ring_bits_for(5000, 64))


@pytest.mark.parametrize(
    ("routing", "most", "came", "hint"),
    [
        ({"reducers": 10_000, "tokens": 1}, "10,000", f"48 {OF_THE_FINEST}", f"{FEWER} {OR_MORE_TOKENS}."),
        ({"reducer_range": [8, 10_000], "tokens": 1}, "10,000", f"48 {OF_THE_FINEST}", f"{FEWER} {OR_MORE_TOKENS}."),
        ({"reducers": 10_000, "policy": "doubling", "strict": True}, "10,000", f"48 {OF_THE_FINEST}", f"{FEWER}."),
    ],
    ids=["one token each", "none for those to be added", "doubling"],
)
def test_a_ring_on_which_a_reducer_owns_nothing_is_refused_in_one_sentence(
    routing: dict[str, Any], most: str, came: str, hint: str
) -> None:
    with pytest.raises(SpecError) as raised:
        first_plan(synthetic.job([1000], **routing))
    required = f"a slot of the ring for each of {most} reducers"
    assert str(raised.value) == f"spec, routing: expected {required}, but got {came}; {hint}"


def relieved(policy: str, ring: Ring, hot: int, **routing: Any) -> Decision:
    """The decision after a stage in which one reducer had nearly all rows, and the ring that it was made on."""
    job = synthetic.job([10_000, 990_000], policy=policy, **routing)
    plan = RoutingPlan(epoch=0, policy=policy, waves=(0, 1), ring=ring)
    keys = {f"key-{number}": 1 for number in range(200)}
    mine = [key for key in keys if ring.slot_owners[ring.slot_of(key)] == hot]
    return plan_next_stage(job, plan, synthetic.report(plan, keys | dict.fromkeys(mine, 2000), head=[]))


#: Each policy that changes rings, on one so coarse that its move would leave somebody nothing.
SQUEEZES = {
    "halving": lambda: relieved("halving", Ring.even(4, 4, 4), hot=0, reducers=4, tokens=4),
    "doubling": lambda: relieved(
        "doubling", Ring(ring_bits=4, tokens={0: 1, 1: 2, 2: 2, 3: 2}), hot=0, reducers=4, strict=True
    ),
    "adaptive": lambda: relieved("adaptive", Ring.even(5, 1, 4), hot=0, reducers=5, tokens=1, reducer_range=[5, 8]),
}


@pytest.mark.parametrize("policy", SQUEEZES)
def test_a_move_that_would_leave_a_reducer_without_a_slot_is_refused(policy: str) -> None:
    decision = SQUEEZES[policy]()
    assert decision.next_plan is not None
    assert not decision.next_plan.ring.empty_reducers
    refused = [one.sentence for one in decision.candidates if "of the ring's 16 slots" in one.sentence]
    assert refused
    assert all("refused, " in one and "would own none of" in one for one in refused)


def test_a_strict_doubling_ends_where_its_page_says() -> None:
    most = 904
    page = (DOCS / "policies" / "doubling.md").read_text(encoding="utf-8")
    assert f"{most} reducers" in " ".join(page.split())
    strict = Policy(name="doubling", strict=True)
    first_ring(Routing(policy=strict, reducers=most))
    with pytest.raises(SpecError, match="take fewer reducers"):
        first_ring(Routing(policy=strict, reducers=most + 1))
    assert first_ring(Routing(policy=Policy(name="doubling"), reducers=most + 1)).tokens[0] == 64


@given(st.integers(0, 5), st.data())
def test_other_tokens_on_a_ring_are_those_of_a_new_ring(bits: int, data: st.DataObject) -> None:
    counts = st.dictionaries(st.integers(0, 9), st.integers(1, 300), min_size=1)
    before, after = data.draw(counts), data.draw(counts)
    ring = Ring(ring_bits=10 + bits, tokens=before)
    changed, fresh = ring.with_tokens(after), Ring(ring_bits=10 + bits, tokens=after)
    assert changed == fresh
    assert changed.places[0].tolist() == fresh.places[0].tolist()
    assert changed.places[1].tolist() == fresh.places[1].tolist()
    assert changed.slot_owners.tolist() == fresh.slot_owners.tolist()


# Waves.

UNITS = st.lists(st.integers(0, 1000), max_size=60)
WEIGHTS = st.lists(st.integers(1, 100), min_size=1, max_size=6)


@given(UNITS, WEIGHTS)
def test_every_unit_with_rows_is_in_exactly_one_wave(rows: list[int], weights: list[int]) -> None:
    waves = cut_waves(rows, weights)
    assert sorted(ordinal for wave in waves for ordinal in wave) == [n for n, count in enumerate(rows) if count]
    assert all(wave and list(wave) == sorted(wave) for wave in waves)
    assert len(waves) <= len(weights)


@given(st.lists(st.integers(1, 20), min_size=200, max_size=300), WEIGHTS)
def test_many_units_meet_the_weights_within_a_unit_per_wave(rows: list[int], weights: list[int]) -> None:
    waves = cut_waves(rows, weights)
    reached = 0
    for number, wave in enumerate(waves):
        reached += sum(rows[ordinal] for ordinal in wave)
        target = sum(rows) * sum(weights[: number + 1]) / sum(weights)
        assert target - 10 - 1e-6 <= reached <= target + 20 * (number + 1) or number == len(waves) - 1


@pytest.mark.parametrize("units", [100, 1000, 10_000])
def test_every_wave_is_spread_over_the_whole_listing(units: int) -> None:
    for wave in cut_waves([10] * units, (1, 4, 15, 80)):
        by_tenth = np.bincount(np.array(wave) * 10 // units, minlength=10)
        assert by_tenth.max() - by_tenth.min() <= max(2, 0.01 * units)


@pytest.mark.parametrize("period", [2, 7, 10, 24, 31, 168])
def test_no_period_of_the_listing_is_met_by_some_waves_only(period: int) -> None:
    """As of files of hours or days, of which every so-and-so-manieth is alike."""
    for wave in cut_waves([10] * 5000, (1, 4, 15, 80)):
        alike = np.bincount(np.array(wave) % period, minlength=period)
        assert alike.max() <= 2 * np.ceil(len(wave) / period)


@pytest.mark.parametrize(
    ("rows", "waves"),
    [([], 0), ([0, 0], 0), ([5], 1), ([5, 5], 2), ([5, 0, 5, 5], 3), ([1, 1, 1, 1, 1000], 2)],
    ids=["no unit", "no row", "one unit", "two units", "an empty unit", "one giant"],
)
def test_few_units_make_few_waves(rows: list[int], waves: int) -> None:
    assert len(cut_waves(rows, (1, 4, 15, 80))) == waves


@given(UNITS, WEIGHTS)
def test_waves_in_order_follow_the_listing_and_leave_nothing_out(rows: list[int], weights: list[int]) -> None:
    waves = cut_waves(rows, weights, in_order=True)
    assert [ordinal for wave in waves for ordinal in wave] == [n for n, count in enumerate(rows) if count]
    assert all(waves)
    assert len(waves) <= len(weights)


@pytest.mark.parametrize(
    ("rows", "waves"),
    [([10] * 20, (1, 4, 15)), ([1000, 1, 1, 1], (1, 1, 2)), ([1, 1, 1, 1000], (3, 1)), ([5, 0, 5, 0, 5], (1, 1, 1))],
    ids=["even", "a giant first", "a giant last", "empty units"],
)
def test_waves_in_order_are_cut_where_their_weights_are_reached(rows: list[int], waves: tuple[int, ...]) -> None:
    assert tuple(map(len, cut_waves(rows, (1, 4, 15), in_order=True))) == waves
