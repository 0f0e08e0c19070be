from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skewless.document import LARGEST_COUNT
from skewless.documents.decision import Decision
from skewless.documents.job import Algebra, Job
from skewless.documents.stage_report import StageReport
from skewless.errors import PlanError
from skewless.planner.cost import MOST_OVERHEAD_SECONDS, USUAL_OVERHEAD_SECONDS, stage_cost
from skewless.planner.first_plan import first_plan
from skewless.planner.forecast.expected_rows import SEEN_ENOUGH
from skewless.planner.forecast.forecast import Forecast
from skewless.planner.placement.placement import Placement
from skewless.planner.planner import plan_next_stage
from skewless.planner.policies import POLICIES
from skewless.planner.policies.proposal import Proposal
from skewless.planner.priced_plan import PricedPlan, choose, expected_largest, propose, refuse_unsafe
from skewless.routing.plan import WHOLE_WEIGHT, RoutingPlan
from tests.unit import synthetic
from tests.unit.synthetic import MERGEABLE, WHOLE

COUNTS = st.dictionaries(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=5), st.integers(1, 5000), min_size=1, max_size=40
)


def skewed(hot: int = 6000) -> dict[str, int]:
    return {"hot": hot, **{f"cold-{number}": 20 for number in range(200)}}


def decided(
    job: Job, seen: Mapping[str, int], backlog: Mapping[str, int] | None = None
) -> tuple[Decision, RoutingPlan]:
    """The decision after a first stage that saw these keys, and the plan that it makes."""
    plan = first_plan(job)
    decision = plan_next_stage(job, plan, synthetic.report(plan, seen, backlog))
    assert decision.next_plan is not None
    return decision, decision.next_plan


JOB = synthetic.job([10_000, 90_000])
PLAN = first_plan(JOB)
REPORT = synthetic.report(PLAN, skewed())


def took(seconds: float, rows: int, report: StageReport = REPORT) -> StageReport:
    """The report of a stage that took so long for so many rows in each task."""
    even = tuple(load.model_copy(update={"processed_rows": rows}) for load in report.tasks)
    return report.model_copy(update={"stage_seconds": seconds, "tasks": even})


@pytest.mark.parametrize("policy", sorted(POLICIES))
@pytest.mark.parametrize("seen", [{}, {"only": 1}], ids=["no row", "so few rows that none is predicted"])
def test_a_run_ends_with_its_last_wave_whatever_a_condition_has_left(policy: str, seen: dict[str, int]) -> None:
    """Waves, backlog and nothing else say whether there is another stage: what they will admit is a guess."""
    counted = synthetic.job([9000, 9000, 100, 100], waves=(1, 1, 1, 1), policy=policy, reducers=4, stage_overhead=0)
    job = counted.model_copy(
        update={"units": tuple(unit.model_copy(update={"counted": False}) for unit in counted.units)}
    )
    plan, reports = first_plan(job), list[StageReport]()
    while plan.waves[1] < 4:
        reports.append(synthetic.report(plan, seen))
        decision = plan_next_stage(job, plan, reports[-1], reports[:-1])
        assert decision.next_plan is not None
        assert decision.next_plan.waves[0] == plan.waves[1] < decision.next_plan.waves[1]
        assert seen or decision.queued_rows == job.admitted_rows(decision.next_plan.waves)
        plan = decision.next_plan
    drained = synthetic.report(plan, seen)
    assert plan_next_stage(job, plan, drained, reports).next_plan is None
    over = synthetic.report(plan, {"last": 1}, {"last": 1})
    drain = plan_next_stage(job, plan, over, reports).next_plan
    assert drain is not None
    assert (drain.waves, drain.budget_rows) == ((4, 4), None)


def test_an_unseen_input_is_taken_to_spread_evenly() -> None:
    job = synthetic.job([0, 800])
    plan = first_plan(job)
    forecast = Forecast.after(job, plan, synthetic.report(plan, {}))
    assert forecast.loads_unchanged() == pytest.approx(np.full(8, 100.0))
    assert plan_next_stage(job, plan, synthetic.report(plan, {})).queued_rows == 800


def test_keys_of_one_count_are_foretold_that_count() -> None:
    """As of sensors that report every second: no count is luck, and nothing is taken from it."""
    job = synthetic.job([100_000, 100_000])
    plan = first_plan(job)
    forecast = Forecast.after(job, plan, synthetic.report(plan, {f"sensor-{number}": 1000 for number in range(100)}))
    assert forecast.head_rows == pytest.approx(np.full(100, 1000.0))
    assert not forecast.tail_wave.any()


def test_keys_that_were_named_for_their_luck_are_foretold_less() -> None:
    counts = synthetic.zipf_rows(5000, 1.0, 50_000)
    job = synthetic.job([int(counts.sum())] * 2)
    plan = first_plan(job)
    seen = {f"key-{number}": int(rows) for number, rows in enumerate(counts)}
    forecast = Forecast.after(job, plan, synthetic.report(plan, seen))
    assert 0.5 < seen["key-100"] - forecast.head_rows[100] < 2.0
    assert forecast.head_rows.sum() + forecast.tail_wave.sum() == pytest.approx(sum(seen.values()))


def test_the_hot_key_is_split_and_everyone_gets_the_fair_share() -> None:
    decision, plan = decided(JOB, skewed(), {"hot": 4000})
    assert len(plan.head["hot"]) > 1
    assert decision.certificate is not None
    assert decision.certificate.gap is not None
    assert decision.certificate.gap < 0.01
    assert plan.epoch == 1
    assert plan.budget_rows == pytest.approx(94_000 / 8, rel=0.1)
    assert sum(plan.expected_rows) == pytest.approx(94_000, abs=8)
    assert "split 1 ('hot')" in decision.sentence


def test_a_key_that_may_not_be_split_is_not_and_the_certificate_says_so() -> None:
    decision, plan = decided(synthetic.job([10_000, 90_000], WHOLE), skewed())
    assert all(len(shares) == 1 for shares in plan.head.values())
    assert decision.certificate is not None
    assert decision.certificate.conclusion == (
        "more tasks will not help: key 'hot' alone is 60% of the rows and its aggregates may not be split"
    )


def test_a_key_above_the_level_that_stays_whole_has_its_task_to_itself() -> None:
    """No input is left: the task of the hot key is done last, and every other key on it is done later still."""
    job = synthetic.job([60_000], WHOLE, reducers=4)
    plan = first_plan(job)
    seen = {"hot": 30_000} | {f"key-{number}": 30 for number in range(1000)}
    report = synthetic.report(plan, seen, {key: rows - 1 for key, rows in seen.items()}, head=["hot"])
    decision = plan_next_stage(job, plan, report)
    assert decision.next_plan is not None
    assert max(decision.next_plan.expected_rows) <= 1.01 * 30_000
    assert decision.candidates[0].makespan_rows > 1.2 * 30_000


def test_a_decision_is_held_to_all_tasks_that_run_side_by_side_as_the_run_is() -> None:
    decision, _ = decided(synthetic.job([10_000, 90_000], policy="static", reducers=4, slots=8), skewed())
    assert decision.certificate is not None
    assert decision.certificate.tasks == 8
    assert decision.certificate.bound_rows == pytest.approx(90_000 / 8)


def test_a_plan_that_splits_what_may_not_be_split_is_refused() -> None:
    job = synthetic.job([1], WHOLE)
    plan = first_plan(job)
    forecast = Forecast.after(job, plan, synthetic.report(plan, {"hot": 100}, {"hot": 100}))
    halves = Placement.of_shares([((0, WHOLE_WEIGHT // 2), (1, WHOLE_WEIGHT // 2))])
    with pytest.raises(PlanError, match="key 'hot' split"):
        refuse_unsafe(job, forecast, halves)
    refuse_unsafe(synthetic.job([1]), forecast, halves)


def test_the_cheapest_is_taken_that_lasts_no_longer_than_standing_still_and_is_not_refused() -> None:
    # Standing still, made dear by what nobody sees in its makespan.
    still = replace(propose(JOB, Forecast.after(JOB, PLAN, REPORT))[0], split_error_rows=50_000.0)

    def other(factor: float, spared: float, refusal: str = "") -> PricedPlan:
        proposal = Proposal("other", "another one", refusal=refusal)
        return replace(still, proposal=proposal, loads=still.loads * factor, split_error_rows=50_000.0 - spared)

    longer, sooner, cheapest = other(1.01, 40_000), other(0.99, 10_000), other(1.0, 30_000)
    refused = other(0.5, 40_000, refusal="it cannot be done")
    assert longer.cost_rows < cheapest.cost_rows < sooner.cost_rows < still.cost_rows
    assert choose([still, longer]) is still
    assert choose([still, refused, longer]) is still
    assert choose([still, longer, sooner]) is sooner
    assert choose([still, sooner, cheapest, longer, refused]) is cheapest
    assert choose([still, other(1.0, 0)]) is still, "of equals the first"


def test_when_nothing_is_queued_the_run_is_finished() -> None:
    job = synthetic.job([10_000])
    plan = first_plan(job)
    decision = plan_next_stage(job, plan, synthetic.report(plan, skewed()))
    assert (decision.next_plan, decision.candidates, decision.queued_rows) == (None, (), 0)
    assert decision.sentence.startswith("no further stage")


def test_the_drain_has_no_budget_and_is_planned_from_the_backlog_s_own_keys() -> None:
    _, plan = decided(synthetic.job([10_000]), skewed(), {"cold-3": 20, "cold-4": 16})
    assert plan.budget_rows is None
    assert set(plan.head) <= {"cold-3", "cold-4"}


def test_keys_seen_a_few_times_are_left_to_the_ring() -> None:
    seen = {**skewed(), "rare": SEEN_ENOUGH - 1, "rare but waiting": 2}
    _, plan = decided(JOB, seen, {"rare but waiting": 20})
    assert "rare" not in plan.head
    assert "rare but waiting" in plan.head


@pytest.mark.parametrize(("stage_seconds", "lifted"), [(1.6, True), (60.0, False)], ids=["cheap rows", "dear rows"])
def test_the_last_wave_has_a_budget_if_a_stage_to_drain_pays(stage_seconds: float, lifted: bool) -> None:
    job = synthetic.job([10_000, 80_000])
    plan = first_plan(job)
    decision = plan_next_stage(job, plan, took(stage_seconds, 1250, synthetic.report(plan, skewed())))
    assert decision.next_plan is not None
    assert (decision.next_plan.budget_rows is None) == ("the budget is lifted" in decision.sentence) == lifted


def test_the_largest_of_some_loads_is_what_order_statistics_and_draws_say() -> None:
    # The means of the largest of 2 and of 3 standard normal variables: 1 / sqrt(pi) and 1.5 / sqrt(pi).
    assert expected_largest(np.zeros(2), np.ones(2)) == pytest.approx(np.pi**-0.5, abs=1e-4)
    assert expected_largest(np.zeros(3), np.ones(3)) == pytest.approx(1.5 * np.pi**-0.5, abs=1e-4)
    loads, errors = np.array([900.0, 1000.0, 1010.0, 0.0]), np.array([50.0, 5.0, 20.0, 1.0])
    drawn = np.random.default_rng(1).normal(loads, errors, (100_000, 4)).max(axis=1).mean()
    assert expected_largest(loads, errors) == pytest.approx(drawn, abs=0.5)
    # Whose forecast is far above all others is the largest: nothing is added for the many that there are.
    assert expected_largest(np.append(np.zeros(99), 5000.0), np.full(100, 50.0)) == pytest.approx(5000.0)


@pytest.mark.parametrize(
    ("stage_seconds", "waves"), [(1.6, (1, 4)), (60_000.0, (1, 2))], ids=["cheap rows", "dear rows"]
)
def test_waves_are_joined_where_stages_cost_more_than_they_save(stage_seconds: float, waves: tuple[int, int]) -> None:
    job = synthetic.job([10_000, 10_000, 20_000, 60_000], waves=(1, 1, 2, 6))
    plan = first_plan(job)
    decision = plan_next_stage(job, plan, took(stage_seconds, 1250, synthetic.report(plan, skewed())))
    assert decision.next_plan is not None
    assert decision.next_plan.waves == waves
    assert ("admitted at once" in decision.sentence) == (waves == (1, 4))


@pytest.mark.parametrize(
    ("of_plan", "of_report", "sentence"),
    [
        ({"epoch": 3}, {}, "planner: expected the report of stage 3, but got that of stage 0."),
        ({}, {"tasks": REPORT.tasks[:-1]}, "report of stage 0: expected the 8 tasks of its plan, but got 7 others."),
        ({}, {"tasks": REPORT.tasks[::-1]}, "report of stage 0: expected the 8 tasks of its plan, but got 8 others."),
        ({}, {"waves": (0, 2)}, "report of stage 0: expected the waves (0, 1) of its plan, but got (0, 2)."),
        (
            {},
            {"processed_rows": LARGEST_COUNT, "admitted_rows": LARGEST_COUNT},
            "report of stage 0: expected counts of at most 9,007,199,254,740,992 in all",
        ),
        (
            {"ring": PLAN.ring.model_copy(update={"ring_bits": 8})},
            {},
            "report of stage 0: expected a tail of 256 slots, as its plan has, but got 4096 and 4096.",
        ),
        ({"policy": "sttic"}, {}, "plan 0, policy: expected a known policy, but got 'sttic'; did you mean 'static'?"),
    ],
    ids=[
        "another stage", "fewer tasks", "tasks in another order", "other waves", "too many rows", "another ring",
        "unknown policy",
    ],
)  # fmt: skip
def test_documents_that_do_not_belong_together_are_refused(
    of_plan: dict[str, Any], of_report: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(PlanError) as raised:
        plan_next_stage(JOB, PLAN.model_copy(update=of_plan), REPORT.model_copy(update=of_report))
    assert str(raised.value).startswith(sentence)


@settings(max_examples=5)
@given(st.integers(2, 2000))
def test_a_heavy_key_is_balanced_on_any_number_of_tasks(reducers: int) -> None:
    decision, _ = decided(synthetic.job([100_000, 900_000], reducers=reducers, tokens=8), {"hot": 99_000, "cold": 1000})
    assert decision.certificate is not None
    assert decision.certificate.gap is not None
    assert decision.certificate.gap < 0.05


def test_what_cannot_be_measured_apart_is_between_what_a_row_may_cost() -> None:
    job = synthetic.job([10_000, 80_000, 10_000])
    cold, warm = took(12.0, 1250), took(14.0, 11_250)
    one, two = stage_cost(job, [cold]), stage_cost(job, [cold, warm])
    assert USUAL_OVERHEAD_SECONDS < one.overhead_seconds < 12.0
    assert 2.0 / 10_000 < two.seconds_per_row < (14.0 - USUAL_OVERHEAD_SECONDS) / 11_250
    # Rows are dear if the stage took longer than any stage takes beside its rows.
    assert stage_cost(job, [took(600.0, 1250)]).overhead_seconds < MOST_OVERHEAD_SECONDS


# A call grows as its documents do: four times the tasks and keys must not take 16 times as long. Seconds are those of
# this process alone, and the least of a few calls, so that other work on the machine counts little.

#: Between 4, which is linear, and 16, which is quadratic.
AT_MOST = 9.0
Documents = tuple[Job, RoutingPlan, StageReport]


def documents(tasks: int, algebra: Algebra, **routing: Any) -> Documents:
    """After a second stage with a backlog: each task has ten keys, and one in ten of them was split before."""
    random = np.random.default_rng(tasks)
    names = [f"key-{number}" for number in range(10 * tasks)]
    first = random.integers(500, 1500, len(names))
    second = np.maximum(first, first * 10 * random.lognormal(0.0, 0.2, len(names))).astype(int)
    left = (second * 0.05 * random.random(len(names))).astype(int)
    reducers = {"reducers": tasks, "head_limit": 100_000, "tokens": 16, **routing}
    job = synthetic.job([int(first.sum()), int(second.sum() - first.sum()), 10**9], algebra, **reducers)
    plan = first_plan(job)
    taken = plan_next_stage(job, plan, synthetic.report(plan, dict(zip(names, first.tolist(), strict=True))))
    assert taken.next_plan is not None
    seen, over = (dict(zip(names, rows.tolist(), strict=True)) for rows in (second, left))
    return job, taken.next_plan, synthetic.report(taken.next_plan, seen, over)


def seconds(job: Job, plan: RoutingPlan, report: StageReport) -> float:
    found = []
    for _ in range(2):
        fresh = RoutingPlan.from_json(plan.to_json())  # so that nothing is kept from an earlier call
        began = time.process_time()
        assert plan_next_stage(job, fresh, report).next_plan is not None
        found.append(time.process_time() - began)
    return min(found)


@pytest.mark.parametrize(
    ("algebra", "routing"),
    [(MERGEABLE, {}), (WHOLE, {}), (WHOLE, {"policy": "bounded_load"})],
    ids=["split keys", "whole keys", "bounded load"],
)
@pytest.mark.long
def test_four_times_the_tasks_and_keys_take_about_four_times_as_long(algebra: Algebra, routing: dict[str, Any]) -> None:
    small, large = (seconds(*documents(tasks, algebra, **routing)) for tasks in (500, 2000))
    assert large < AT_MOST * small


@pytest.mark.long
def test_key_buckets_for_thousands_of_free_slots_take_about_as_long_as_there_are_slots() -> None:
    def needed(reducers: int) -> float:
        job = synthetic.job([20_000, 10**9], reducers=reducers, slots=8 * reducers)
        plan = first_plan(job)
        return seconds(job, plan, synthetic.report(plan, {f"key-{number}": 20 for number in range(1000)}))

    assert needed(2000) < AT_MOST * needed(500)


@pytest.mark.long
def test_a_call_for_many_keys_and_tasks_takes_seconds_not_minutes() -> None:
    counts = synthetic.zipf_rows(20_000, 1.0, 2_000_000)
    job = synthetic.job([2_000_000, 90_000_000], reducers=2000, tokens=16)
    plan = first_plan(job)
    report = synthetic.report(plan, {f"key-{number}": int(rows) for number, rows in enumerate(counts)})
    began = time.process_time()
    decision = plan_next_stage(job, plan, report)
    assert time.process_time() - began < 3
    assert decision.certificate is not None
    assert decision.certificate.gap is not None
    assert decision.certificate.gap < 0.02
