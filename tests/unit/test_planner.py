import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from skewless.document import LARGEST_COUNT
from skewless.documents.job import Algebra, Job
from skewless.documents.stage_report import Decision, StageReport
from skewless.errors import PlanError
from skewless.planner.first_plan import first_plan
from skewless.planner.forecast.forecast import Forecast
from skewless.planner.placement.placement import Placement, Proposal
from skewless.planner.planner import plan_next_stage
from skewless.planner.policies import POLICIES
from skewless.planner.priced_plan import PricedPlan, choose, propose, refuse_unsafe
from skewless.routing.plan import WHOLE_WEIGHT, RoutingPlan
from tests.unit import synthetic
from tests.unit.synthetic import WHOLE


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


# A call grows as its documents do: four times the tasks and keys must not take 16 times as long. Seconds are those of
# this process alone, and the least of a few calls, so that other work on the machine counts little.

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


@pytest.mark.long
def test_a_call_for_10_000_tasks_and_100_000_keys_takes_a_part_of_a_second() -> None:
    counts = synthetic.zipf_rows(100_000, 1.0, 10_000_000)
    job = synthetic.job([10_000_000, 450_000_000], reducers=10_000, tokens=16)
    plan = first_plan(job)
    report = synthetic.report(plan, {f"key-{number}": int(rows) for number, rows in enumerate(counts)})
    began = time.process_time()
    decision = plan_next_stage(job, plan, report)
    assert time.process_time() - began < 0.6  # 0.3 s on a machine that does nothing else
    assert decision.certificate is not None
    assert decision.certificate.gap is not None
    assert decision.certificate.gap < 0.02
