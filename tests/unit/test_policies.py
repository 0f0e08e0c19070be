from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from benchmarks.simulation import MERGEABLE
from skewless.documents.job import Job
from skewless.documents.stage_report import Decision, StageReport
from skewless.planner.first_plan import first_plan
from skewless.planner.forecast.forecast import Forecast
from skewless.planner.placement.head_keys import SLIVER, choices_of, pour_over_choices, water_level
from skewless.planner.placement.placement import Placement, Proposal
from skewless.planner.placement.ring_changes import doubled, doubling_rounds, evened, halved, halving_rounds
from skewless.planner.planner import plan_next_stage
from skewless.planner.policies import POLICIES, Policy
from skewless.planner.priced_plan import PricedPlan, choose, propose
from skewless.routing.plan import WHOLE_WEIGHT, RoutingPlan
from skewless.routing.ring import Ring
from skewless.spec.routing import POLICY_FIELDS
from skewless.spec.routing import Policy as RoutingPolicy
from tests.unit import synthetic
from tests.unit.synthetic import WHOLE

ALL = sorted(POLICIES)
#: Those that place named keys over choices.
CHOOSERS = ["partial_key", "d_choices", "w_choices"]
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
COUNTS = st.dictionaries(TEXTS, st.integers(1, 5000), min_size=1, max_size=40)


def predicted(
    policy: str,
    seen: Mapping[str, int],
    wave: int = 100_000,
    *,
    plan: Mapping[str, Any] | None = None,
    backlog: Mapping[str, int] | None = None,
    named: Sequence[str] | None = None,
    **job: Any,
) -> tuple[Job, Forecast]:
    frozen = synthetic.job([sum(seen.values()), wave], policy=policy, **job)
    first = first_plan(frozen).model_copy(update=dict(plan or {}))
    report = synthetic.report(first, seen, backlog, named)
    return frozen, Forecast.after(frozen, first, report)


def asked(policy: str, seen: Mapping[str, int], wave: int = 100_000, **more: Any) -> list[PricedPlan]:
    return list(propose(*predicted(policy, seen, wave, **more)))[1:]


def keys_by_task(plan: RoutingPlan, each: int = 1) -> list[list[str]]:
    found: list[list[str]] = [[] for _ in plan.tasks]
    number = 0
    while any(len(keys) < each for keys in found):
        mine = found[plan.tail_task(f"key-{number}")]
        if len(mine) < each:
            mine.append(f"key-{number}")
        number += 1
    return found


def loaded(policy: str, rows: Sequence[int], **routing: Any) -> dict[str, int]:
    """Three keys on each of the tasks of a first plan, that together have about these rows."""
    plan = first_plan(synthetic.job([1], policy=policy, reducers=len(rows), **routing))
    return {key: n // 3 for keys, n in zip(keys_by_task(plan, 3), rows, strict=True) for key in keys}


def reported(policy: str, data: st.DataObject, **routing: Any) -> tuple[Job, RoutingPlan, StageReport]:
    drawn = data.draw(
        st.dictionaries(TEXTS, st.tuples(st.integers(1, 5000), st.integers(0, 4)), min_size=1, max_size=40)
    )
    seen = {key: rows for key, (rows, _) in drawn.items()}
    backlog = {key: rows * left // 4 for key, (rows, left) in drawn.items()}
    named = sorted(seen)[: data.draw(st.integers(0, len(seen)))]
    job = synthetic.job([sum(seen.values()), data.draw(st.integers(0, 9000))], policy=policy, **routing)
    plan = first_plan(job)
    if policy == "virtual_tasks":
        plan = plan.model_copy(update={"factors": {0: data.draw(st.sampled_from([1, 2, 4])), 2: 2}})
    return job, plan, synthetic.report(plan, seen, backlog, named)


def test_policies_are_what_their_pages_say_but_for_two() -> None:
    assert [*POLICIES] == [*POLICY_FIELDS]
    assert [name for name, policy in POLICIES.items() if not policy.replans] == ["static"]
    assert [name for name, policy in POLICIES.items() if policy.schedules] == ["adaptive"]


@pytest.mark.parametrize("policy", ALL)
@settings(max_examples=10)
@given(st.data())
def test_a_decision_is_never_worse_than_standing_still_and_loses_no_row(policy: str, data: st.DataObject) -> None:
    algebra = data.draw(st.sampled_from([MERGEABLE, WHOLE]))
    job, plan, report = reported(policy, data, algebra=algebra, reducers=4, slots=data.draw(st.sampled_from([4, 6])))
    decision = plan_next_stage(job, plan, report)
    turned = dict(reversed(report.histogram.head.items()))
    again = report.model_copy(update={"histogram": report.histogram.model_copy(update={"head": turned})})
    assert plan_next_stage(job, plan, again) == decision, "the order of the input changes nothing"
    assert Decision.from_json(decision.to_json()) == decision
    still, *_ = decision.candidates
    (chosen,) = [one for one in decision.candidates if one.chosen]
    assert still.action == "stand still"
    assert chosen.cost_rows <= still.cost_rows
    assert chosen.makespan_rows <= still.makespan_rows
    assert all(one.sentence for one in decision.candidates)
    forecast = Forecast.after(job, plan, report)
    assert decision.queued_rows == job.units[1].rows + report.backlog_rows
    for one in propose(job, forecast) if forecast.queued_rows else ():
        assert one.loads.sum() == pytest.approx(forecast.queued_rows)
        assert (one.loads >= -1e-6).all()
        valid = RoutingPlan.model_validate(one.routing.model_copy(update={"head": one.head()}).model_dump())
        assert len(valid.tasks) == len(one.loads)
        for shares in valid.head.values():
            assert sum(weight for _, weight in shares) == WHOLE_WEIGHT
            assert algebra is MERGEABLE or len(shares) == 1


def test_halving_takes_half_of_the_tokens_of_the_longest_queue() -> None:
    seen = loaded("halving", [400, 4000, 400])
    (one,) = asked("halving", seen, 4800, reducers=3)
    assert one.proposal.ring == Ring(tokens={0: 64, 1: 32, 2: 64})
    assert (one.proposal.action, one.proposal.sentence) == ("halve", "halve the tokens of reducer 1 from 64 to 32")
    assert one.head() == {}
    assert one.routing.share_salt == 0


def test_doubling_doubles_the_tokens_of_all_others() -> None:
    seen = loaded("doubling", [400, 4000, 400])
    (one,) = asked("doubling", seen, 4800, reducers=3)
    assert one.proposal.ring == Ring(tokens={0: 128, 1: 64, 2: 128})
    words = "double the tokens of all reducers but 1, from 192 to 320 in all"
    assert (one.proposal.action, one.proposal.sentence) == ("double", words)


@pytest.mark.parametrize("policy", ["halving", "doubling", "virtual_tasks", *CHOOSERS, "bounded_load"])
def test_a_strict_policy_does_what_it_proposes_at_its_price(policy: str) -> None:
    """One hot key on one of two reducers: whoever moves it whole gains nothing, and pays for the rows it forwards."""
    hot = {"hot": 9000}
    job, forecast = predicted(policy, hot, 0, backlog=hot, reducers=2, slots=4, threshold=0, strict=True)
    priced = list(propose(job, forecast))
    taken = choose(priced, strict=True)
    assert taken is priced[-1]
    assert taken.proposal.action != "stand still"
    decision = plan_next_stage(job, forecast.plan, forecast.report)
    assert [one.action for one in decision.candidates if one.chosen] == [taken.proposal.action]
    assert choose(priced).cost_rows <= min(priced[0].cost_rows, taken.cost_rows)


@pytest.mark.parametrize(
    ("policy", "tokens", "routing", "reason"),
    [
        ("halving", {0: 1, 1: 64}, {}, "it has one token left and ran out of halving"),
        ("halving", {0: 4, 1: 64}, {}, "its 4 rounds of 4 are used up"),
        ("doubling", {0: 1, 1: 16}, {"tokens": 1}, "its 4 rounds of 4 are used up"),
        ("doubling", {0: 4096, 1: 4096}, {"tokens": 4096}, "a reducer would hold more than 4,096 tokens"),
    ],
    ids=["one token", "halved enough", "doubled enough", "many tokens"],
)
def test_relief_that_is_due_and_cannot_be_given_says_why(
    policy: str, tokens: dict[int, int], routing: dict[str, Any], reason: str
) -> None:
    ring = Ring(tokens=tokens)
    keys = keys_by_task(first_plan(synthetic.job([1], policy=policy, reducers=2)).model_copy(update={"ring": ring}))
    seen = {keys[0][0]: 4000, keys[1][0]: 400}
    job, forecast = predicted(policy, seen, plan={"ring": ring}, reducers=2, **routing)
    decision = plan_next_stage(job, forecast.plan, forecast.report)
    still, refused = decision.candidates
    assert still.chosen
    assert refused.sentence.startswith(f"{refused.action} the tokens of ")
    assert ": refused, " in refused.sentence
    assert reason in refused.sentence
    assert decision.next_plan is not None
    assert decision.next_plan.ring == ring


def test_a_reducer_with_a_task_that_is_too_large_is_split_where_slots_are_free() -> None:
    seen = loaded("virtual_tasks", [8000, 800])
    (one,) = asked("virtual_tasks", seen, 8800, reducers=2, slots=4)
    assert (one.proposal.action, one.proposal.sentence) == ("split", "split 0-0-1 into 0-0-2+0-1-2")
    assert one.routing.factors == {0: 2}
    assert [str(task) for task in one.routing.tasks] == ["0-0-2", "0-1-2", "1-0-1"]
    assert one.head() == {}


def test_a_single_key_gains_nothing_by_a_split_and_the_numbers_say_so() -> None:
    job, forecast = predicted("virtual_tasks", {"hot": 8000}, reducers=2, slots=4)
    still, one = propose(job, forecast)
    assert one.proposal.action == "split"
    assert one.makespan_rows == still.makespan_rows
    assert choose([still, one]) is still
    decision = plan_next_stage(job, forecast.plan, forecast.report)
    assert "(+0.0% against standing still); refused, another costs less" in decision.candidates[1].sentence


def test_small_siblings_are_merged_but_not_before_they_fit_well() -> None:
    plan = first_plan(synthetic.job([1], reducers=2)).model_copy(update={"factors": {0: 2}})
    keys = [found[0] for found in keys_by_task(plan)]
    seen = dict(zip(keys, [200, 200, 4000], strict=True))
    found = asked("virtual_tasks", seen, 4400, plan={"factors": {0: 2}}, reducers=2, slots=3)
    assert [one.proposal.action for one in found] == ["split", "merge", "split and merge"]
    assert [one.routing.factors for one in found] == [{0: 2, 1: 2}, {}, {1: 2}]
    assert found[1].proposal.sentence == "merge 0-0-2+0-1-2 into 0-0-1"
    assert found[2].proposal.sentence == "split 1-0-1 into 1-0-2+1-1-2, merge 0-0-2+0-1-2 into 0-0-1"
    seen = dict(zip(keys, [800, 800, 800], strict=True))
    assert asked("virtual_tasks", seen, 2400, plan={"factors": {0: 2}}, reducers=2, slots=3) == []


def test_candidates_are_the_same_for_ever() -> None:
    found = [list(choices_of(key, 10, 3)) for key in ("", "a", "the", "zürich", "日本")]
    assert found == [[1, 2, 4], [0, 5, 4], [2, 5, 6], [1, 5, 4], [6, 7, 9]]


@given(TEXTS, st.integers(1, 40), st.integers(1, 50))
def test_candidates_are_distinct_and_the_first_stay_the_first(key: str, tasks: int, choices: int) -> None:
    found = list(choices_of(key, tasks, choices))
    assert len(found) == len(set(found)) == min(tasks, choices)
    assert set(found) <= set(range(tasks))
    if choices < tasks:
        assert found == list(choices_of(key, tasks, choices + 1))[:choices] or choices + 1 == tasks


@given(
    st.lists(st.integers(1, 5000), min_size=1, max_size=30),
    st.lists(st.integers(0, 5000), min_size=1, max_size=9),
    st.integers(1, 10),
    st.booleans(),
)
def test_keys_are_poured_over_their_candidates_only(
    rows: list[int], base: list[int], choices: int, splittable: bool
) -> None:
    keys = [f"key-{n}" for n in range(len(rows))]
    amounts, tasks = np.array(rows, dtype=np.float64), len(base)
    floors = np.array(base, dtype=np.float64)
    placed = pour_over_choices(keys, amounts, floors, np.full(len(rows), choices), splittable=splittable)
    loads = floors + placed.loads(amounts, tasks)
    assert loads.sum() == pytest.approx(floors.sum() + amounts.sum())
    assert sorted(set(placed.key.tolist())) == list(range(len(rows)))
    for key, task in zip(placed.key.tolist(), placed.task.tolist(), strict=True):
        assert task in choices_of(keys[key], tasks, choices)
    if choices == 1:
        assert placed.task.tolist() == [choices_of(key, tasks, 1)[0] for key in keys]
    if not splittable:
        assert not len(placed.split)
    elif choices >= tasks:
        level, fair = water_level(floors, float(amounts.sum())), float(loads.mean())
        # Slivers, and the rounding of shares to 1/256 of a piece.
        assert loads.max() <= max(level, floors.max()) + SLIVER * fair * len(rows) + amounts.sum() / 256


@pytest.mark.parametrize("policy", CHOOSERS)
def test_many_tasks_need_more_than_two_choices(policy: str) -> None:
    seen = {"hot": 30_000, **{f"cold-{n}": 70 for n in range(1000)}}
    (one,) = asked(policy, seen, reducers=50)
    shares = dict(one.head())["hot"]
    ideal = one.loads.mean()
    if policy == "partial_key":
        assert len(shares) == 2
        assert one.makespan_rows > 7 * ideal
    else:
        assert len(shares) > 14
        assert one.makespan_rows < 1.1 * ideal
    assert all(len(other) <= 2 for key, other in one.head().items() if key != "hot")


def test_a_key_walks_clockwise_to_the_first_reducer_with_room() -> None:
    ring = Ring.even(4, 1)
    plan = first_plan(synthetic.job([1], reducers=4, tokens=1))
    keys = keys_by_task(plan, 2)
    start = 2
    clockwise = ring.slot_owners.tolist()
    here = ring.slot_of(keys[start][1])
    around = [owner for owner in clockwise[here:] + clockwise[:here] if owner != start]
    seen = {keys[start][0]: 4100, keys[start][1]: 4000}
    seen |= {keys[other][0]: 100 for other in range(4) if other != start}
    (one,) = asked("bounded_load", seen, 8400, reducers=4, tokens=1, capacity=2.1)
    tasks = {key: shares[0][0] for key, shares in one.head().items()}
    assert tasks.pop(keys[start][1]) == around[0]
    assert all(task == plan.tail_task(key) for key, task in tasks.items())
    assert one.proposal.sentence == "place 5 keys within 4,410 rows a reducer: 1 of them walk on along the ring"


@given(COUNTS, st.floats(1.0, 3.0))
def test_nobody_gets_more_than_the_capacity_but_from_keys_that_fit_nowhere(
    seen: dict[str, int], capacity: float
) -> None:
    found = asked("bounded_load", seen, 9000, reducers=4, capacity=capacity)
    for one in found:
        limit = capacity * one.loads.mean()
        forecast = one.forecast
        over = np.flatnonzero(one.loads > limit * (1 + 1e-6))
        tail = forecast.tail_rows(one.routing)
        if "fit nowhere" not in one.proposal.sentence:
            assert (one.loads[over] == pytest.approx(tail[over])).all() if len(over) else True
        assert not len(one.placement.split)


def _all_on_one(_job: Job, forecast: Forecast) -> list[Proposal]:
    return [
        Proposal("toy", "place each heavy key on the first task", Placement.pinned(np.zeros(len(forecast.keys), int)))
    ]


def test_one_more_policy_is_a_module_and_a_line_for_planner_and_spec(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(POLICIES, "toy", Policy(_all_on_one))
    monkeypatch.setitem(POLICY_FIELDS, "toy", ("capacity",))
    job, forecast = predicted("toy", {"a": 10, "b": 10, "c": 10}, reducers=4)
    assert job.spec.routing.policy.capacity == 1.1
    stands, toy = priced = list(propose(job, forecast))
    assert set(toy.head().values()) == {((0, WHOLE_WEIGHT),)}
    assert choose(priced) is stands, "it is judged like any other, and standing still is better"
    with pytest.raises(ValidationError, match="strict only with policy"):
        RoutingPolicy(name="toy", strict=True)


#: Tokens of reducers that need not be numbered without gaps.
TOKENS = st.dictionaries(st.integers(0, 40), st.integers(1, 30), min_size=1, max_size=8)
BITS = st.integers(4, 10)


@given(st.dictionaries(st.integers(0, 40), st.sampled_from([1, 2, 4, 8, 16]), min_size=1, max_size=8), BITS, st.data())
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
