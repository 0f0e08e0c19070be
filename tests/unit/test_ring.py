from typing import Any

import mmh3
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from skewless.documents.stage_report import Decision
from skewless.errors import SpecError
from skewless.planner.first_plan import first_plan
from skewless.planner.planner import plan_next_stage
from skewless.routing.plan import RoutingPlan, cut_waves
from skewless.routing.ring import Ring
from tests.unit import synthetic

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


@pytest.mark.parametrize("tokens", [{}, {0: 0}, {-1: 3}], ids=["nobody", "no token", "negative reducer"])
def test_a_ring_without_owners_is_refused(tokens: dict[int, int]) -> None:
    with pytest.raises(ValidationError, match="at least one reducer"):
        Ring(tokens=tokens)


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


@pytest.mark.parametrize("period", [2, 7, 10, 24, 31, 168])
def test_no_period_of_the_listing_is_met_by_some_waves_only(period: int) -> None:
    """As of files of hours or days, of which every so-and-so-manieth is alike."""
    for wave in cut_waves([10] * 5000, (1, 4, 15, 80)):
        alike = np.bincount(np.array(wave) % period, minlength=period)
        assert alike.max() <= 2 * np.ceil(len(wave) / period)


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
