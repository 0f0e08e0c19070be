"""What a policy cannot take back is held to standing still to the end of the run; what is recent counts more."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from benchmarks.simulation import simulated_job
from benchmarks.staged import simulate
from benchmarks.workloads import zipf
from skewless.documents.job import Algebra, Job
from skewless.documents.stage_report import Decision, Histogram, StageReport
from skewless.errors import PlanError
from skewless.planner.first_plan import first_plan
from skewless.planner.forecast.observed_waves import ROW_SECONDS, weighted
from skewless.planner.planner import plan_next_stage
from skewless.planner.policies import POLICIES
from tests.tiers import mostly_long
from tests.unit import synthetic

LASTING = [name for name, policy in POLICIES.items() if policy.replans and not policy.places]


def job(waves: int, *, in_order: bool = False, **routing: Any) -> Job:
    return simulated_job([1000] * (10 * waves), in_order=in_order, waves=(1.0,) * waves, reducers=2, **routing)


def skewed(times: int) -> dict[str, int]:
    """Keys of the plain ring of two reducers: those of the first one have three times the rows."""
    plan = first_plan(job(2, policy="halving"))
    return {f"key-{n}": times * (3 if plan.tail_task(f"key-{n}") == 0 else 1) for n in range(200)}


def decided(waves: int, seen: dict[str, int], **more: Any) -> Decision:
    frozen = job(waves, policy="halving", stage_overhead=0, **more)
    plan = first_plan(frozen)
    return plan_next_stage(frozen, plan, synthetic.report(plan, seen))


def taken(decision: Decision) -> str:
    return next(one.action for one in decision.candidates if one.chosen)


def test_the_policies_that_place_no_key_are_those_whose_moves_last() -> None:
    assert LASTING == ["halving", "doubling", "virtual_tasks"]


def test_the_only_stage_with_input_stops_where_a_drain_costs_a_hundredth_of_it() -> None:
    def budget(seconds: float, row_seconds: float | None = 1e-4) -> int | None:
        algebra = Algebra(mergeable=True, ordered=False, row_seconds=row_seconds)
        return first_plan(job(1, policy="adaptive", algebra=algebra, stage_overhead=seconds)).budget_rows

    row_seconds = 1e-4 + ROW_SECONDS
    assert budget(0.0) == 5000, "a stage that costs nothing: the fair share"
    assert budget(70 * row_seconds) == 7000
    assert budget(200 * row_seconds) is None, "more than there is"
    assert budget(1.0, row_seconds=None) is None, "nobody knows what a row costs"


def test_a_gain_that_lasts_is_taken() -> None:
    assert taken(decided(4, skewed(20))) == "halve"


def test_a_gain_that_may_be_luck_is_not_taken() -> None:
    rows = {key: max(1, count // 20) for key, count in skewed(20).items()}
    light = {key: rows[key] for key in list(rows)[:24]}
    decision = decided(4, light)
    still, halve = decision.candidates
    assert halve.makespan_rows < still.makespan_rows
    assert taken(decision) == "stand still"


def test_where_waves_come_in_order_what_lasts_is_not_moved_on_a_forecast() -> None:
    """The rows that were to move may be of keys that never come again."""
    assert taken(decided(4, skewed(20), in_order=True)) == "stand still"


@pytest.mark.parametrize("policy", LASTING)
@pytest.mark.parametrize("overhead", [0.0, 0.1])
def test_no_stage_is_added_for_rows_that_would_stay_where_they_are(policy: str, overhead: float) -> None:
    keys = zipf(2_000, 1.2, 20_000, seed=3)
    _, run = simulate(keys, 4, policy, overhead=overhead)
    _, static = simulate(keys, 4, "static", overhead=overhead)
    assert len(run.reports) == len(static.reports) == 4
    assert run.reports[0].backlog_rows > 0
    assert run.plans[-1].budget_rows is None


@pytest.mark.parametrize("policy", mostly_long(["partial_key", "d_choices", "w_choices", "bounded_load"], "w_choices"))
def test_a_stage_that_drains_is_added_only_where_it_is_worth_its_price(policy: str) -> None:
    keys = zipf(2_000, 1.2, 20_000, seed=3)
    stages = {overhead: len(simulate(keys, 4, policy, overhead=overhead)[1].reports) for overhead in (0.0, 0.5)}
    assert stages[0.5] == 4


# What is recent counts more where waves come in order, as far as that would have predicted the last stage better.

STEADY = {f"cold-{number}": 40 for number in range(100)}


def of_waves(waves: int, *, in_order: bool = True) -> Job:
    return simulated_job([500] * (10 * waves), in_order=in_order, waves=(1.0,) * waves, reducers=4)


def reports(frozen: Job, stages: Sequence[Mapping[str, int]]) -> list[StageReport]:
    found, seen = [], dict[str, int]()
    for number, stage in enumerate(stages):
        seen = {key: seen.get(key, 0) + stage.get(key, 0) for key in {**seen, **stage}}
        plan = first_plan(frozen).model_copy(update={"epoch": number, "waves": (number, number + 1)})
        found.append(synthetic.report(plan, seen).model_copy(update={"admitted_rows": sum(stage.values())}))
    return found


def share(histogram: Histogram | None, key: str) -> float:
    assert histogram is not None
    return histogram.head[key][0] / histogram.seen_rows


def test_a_key_that_ended_is_forgotten() -> None:
    frozen = of_waves(6)
    stages = [{**STEADY, "gone": 4000}] * 2 + [{**STEADY, "hot": 4000}] * 2
    found = weighted(frozen, reports(frozen, stages))
    assert share(found, "gone") < 0.01
    assert share(found, "hot") == pytest.approx(0.5, abs=0.02)


def test_of_keys_that_change_each_time_only_their_number_is_believed() -> None:
    frozen = of_waves(6)
    stages = [{**STEADY, f"hot-{number}": 4000} for number in range(4)]
    found = weighted(frozen, reports(frozen, stages))
    assert max(share(found, f"hot-{number}") for number in range(4)) < 0.1
    assert found is not None
    assert sum(found.seen_tail) > 0.5 * found.seen_rows


def test_a_key_that_is_named_late_did_not_begin_then() -> None:
    """It was steady all along and only now heavy enough to be named: to the forecast it must stay what it was."""
    frozen, steady = of_waves(6), {f"key-{number}": 100 for number in range(40)}
    found = reports(frozen, [steady] * 3)
    late = found[-1].histogram
    for number, report in enumerate(found[:-1]):
        head = {key: rows for key, rows in report.histogram.head.items() if key != "key-7"}
        tail = list(report.histogram.seen_tail)
        tail[first_plan(frozen).ring.slot_of("key-7")] += report.histogram.head["key-7"][0]
        unnamed = report.histogram.model_copy(update={"head": head, "seen_tail": tuple(tail)})
        found[number] = report.model_copy(update={"histogram": unnamed})
    assert "key-7" in late.head
    assert weighted(frozen, found) == weighted(frozen, reports(frozen, [steady] * 3))


def test_reports_that_forget_rows_are_refused() -> None:
    frozen = of_waves(4)
    first, second = reports(frozen, [STEADY, STEADY])
    fewer = second.histogram.model_copy(update={"head": {**second.histogram.head, "cold-3": (10, 0)}})
    with pytest.raises(PlanError, match="report of stage 1: expected at least as many rows seen"):
        weighted(frozen, [first, second.model_copy(update={"histogram": fewer})])
