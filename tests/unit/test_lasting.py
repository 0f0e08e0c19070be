"""What a policy cannot take back is held to standing still to the end of the run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks.simulation import simulated_job
from benchmarks.staged import simulate
from benchmarks.workloads import zipf
from skewless.documents.decision import Decision
from skewless.documents.job import Algebra, Job
from skewless.planner.cost import ROW_SECONDS
from skewless.planner.first_plan import first_plan
from skewless.planner.forecast.forecast import Forecast
from skewless.planner.placement.placement import Placement
from skewless.planner.placement.token_moves import halved
from skewless.planner.planner import plan_next_stage
from skewless.planner.policies import POLICIES
from skewless.planner.priced_plan import SURE, rest_of_run
from tests.unit import synthetic

LASTING = [name for name, policy in POLICIES.items() if policy.replans and not policy.places]


def job(waves: int, *, in_order: bool = False, **routing: Any) -> Job:
    """Of waves of 10,000 rows each, in partitions of 1,000."""
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


@pytest.mark.parametrize("policy", [name for name, policy in POLICIES.items() if name != "static"])
def test_where_all_input_is_one_wave_a_stage_that_drains_is_paid_for_or_not_added(policy: str) -> None:
    keys = zipf(500, 0.5, 20_000, seed=0)
    costs = {}
    for name in ("static", policy):
        outcome, run = simulate(keys, 8, name, (1.0,), overhead=0.15)
        costs[name] = sum(run.makespans) + run.overhead_seconds * outcome.stages
    assert costs[policy] == costs["static"]


@pytest.mark.parametrize("policy", LASTING)
def test_where_all_input_is_one_wave_a_budget_of_the_spec_is_one(policy: str) -> None:
    assert first_plan(job(1, policy=policy, budget=1.5)).budget_rows == 7500


def test_the_only_stage_with_input_stops_where_a_drain_costs_a_hundredth_of_it() -> None:
    def budget(seconds: float, row_seconds: float | None = 1e-4) -> int | None:
        algebra = Algebra(mergeable=True, ordered=False, row_seconds=row_seconds)
        return first_plan(job(1, policy="adaptive", algebra=algebra, stage_overhead=seconds)).budget_rows

    row_seconds = 1e-4 + ROW_SECONDS
    assert budget(0.0) == 5000, "a stage that costs nothing: the fair share"
    assert budget(70 * row_seconds) == 7000
    assert budget(200 * row_seconds) is None, "more than there is"
    assert budget(1.0, row_seconds=None) is None, "nobody knows what a row costs"


def test_where_tasks_wait_for_each_other_no_stage_has_a_budget() -> None:
    """Each core runs two tasks of a stage, one after the other: a budget for each task would only idle the cores."""
    frozen = job(4, policy="partial_key", slots=1)
    plan = first_plan(frozen)
    decision = plan_next_stage(frozen, plan, synthetic.report(plan, skewed(20)))
    assert decision.next_plan is not None
    assert decision.next_plan.budget_rows is None


def test_a_gain_that_lasts_is_taken() -> None:
    assert taken(decided(4, skewed(20))) == "halve"


def test_a_gain_that_may_be_luck_is_not_taken() -> None:
    """The same skew of the keys, seen in a fiftieth of the rows."""
    rows = {key: max(1, count // 20) for key, count in skewed(20).items()}
    light = {key: rows[key] for key in list(rows)[:24]}
    decision = decided(4, light)
    still, halve = decision.candidates
    assert halve.makespan_rows < still.makespan_rows
    assert taken(decision) == "stand still"


def test_where_waves_come_in_order_what_lasts_is_not_moved_on_a_forecast() -> None:
    """The rows that were to move may be of keys that never come again."""
    assert taken(decided(4, skewed(20), in_order=True)) == "stand still"


def test_all_stages_that_are_left_are_counted() -> None:
    frozen = job(5, policy="halving")
    plan = first_plan(frozen)
    forecast = Forecast.after(frozen, plan, synthetic.report(plan, skewed(20)))
    still = rest_of_run(frozen, forecast, plan, forecast.placement_now)
    next_stage = float(forecast.wave_loads(plan, forecast.placement_now).max())
    assert still.later_rows == pytest.approx(3 * next_stage)
    assert still.error_rows == 0.0
    moved = plan.model_copy(update={"ring": halved(plan.ring, 0)})
    after = rest_of_run(frozen, forecast, moved, Placement.pinned(forecast.on_ring(moved)))
    assert after.later_rows < still.later_rows
    assert after.error_rows > SURE * 10


@pytest.mark.parametrize("policy", LASTING)
@pytest.mark.parametrize("overhead", [0.0, 0.1])
def test_no_stage_is_added_for_rows_that_would_stay_where_they_are(policy: str, overhead: float) -> None:
    keys = zipf(2_000, 1.2, 20_000, seed=3)
    _, run = simulate(keys, 4, policy, overhead=overhead)
    _, static = simulate(keys, 4, "static", overhead=overhead)
    assert len(run.reports) == len(static.reports) == 4
    assert run.reports[0].backlog_rows > 0
    assert run.plans[-1].budget_rows is None


@pytest.mark.parametrize("policy", ["partial_key", "d_choices", "w_choices", "bounded_load"])
def test_a_stage_that_drains_is_added_only_where_it_is_worth_its_price(policy: str) -> None:
    keys = zipf(2_000, 1.2, 20_000, seed=3)
    stages = {overhead: len(simulate(keys, 4, policy, overhead=overhead)[1].reports) for overhead in (0.0, 0.5)}
    assert stages[0.5] == 4


def test_budgets_in_order_follow_how_the_last_forecast_was_missed() -> None:
    """A new hot key in each wave: most tasks get less than predicted, and none should wait for the others."""
    random = np.random.default_rng(5)
    keys = zipf(2_000, 0.8, 50_000, seed=5)
    wave = np.arange(len(keys)) * 5 // len(keys)
    keys = np.where(random.random(len(keys)) < 0.6, 100_000 + wave, keys)
    _, run = simulate(keys, 8, "adaptive", (1.0,) * 5, in_order=True)
    for plan, report in list(zip(run.plans, run.reports, strict=True))[1:-1]:
        mean = sum(load.queued_rows for load in report.tasks) / 8
        assert plan.budget_rows is not None
        assert plan.budget_rows < 0.69 * mean
    assert sum(run.makespans) <= 1.10 * len(keys) / 8


def test_a_key_that_stays_whole_is_not_left_over_at_the_price_of_a_stage() -> None:
    """No drain spreads it: with or without one its task takes as long, and the stage is paid on top."""
    keys = zipf(500, 1.8, 30_000, seed=4)
    _, run = simulate(keys, 6, "bounded_load", overhead=0.15)
    _, static = simulate(keys, 6, "static", overhead=0.15)
    assert len(run.reports) == len(static.reports) == 4
    assert sum(run.makespans) <= 1.01 * sum(static.makespans)
