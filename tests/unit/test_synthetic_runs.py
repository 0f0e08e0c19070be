"""Whole runs on synthetic keys: the planner's promises, stage by stage, in arithmetic alone."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.simulation import Simulation
from skewless.documents.ledger import balance
from skewless.planner.first_plan import first_plan
from skewless.replay.replay import replay
from skewless.routing.hashing import pack_origin
from tests.tiers import mostly_long
from tests.unit.synthetic import simulated, zipf_rows

SKEWS = pytest.mark.parametrize(
    ("keys", "exponent"), mostly_long([(20_000, 1.0), (5000, 1.2), (2000, 1.6)], (2000, 1.6))
)


def check(run: Simulation) -> None:
    """Each row is reduced once, and the ledger says so."""
    assert np.array_equal(run.reduced[:-1], np.bincount(run.rows, minlength=len(run.texts)))
    assert balance(run.job, run.reports, int(run.reduced.sum())).problems == ()
    assert run.reports[-1].backlog_rows == 0
    assert len(run.reports) <= run.job.last_stage + 1


@SKEWS
def test_adaptive_runs_even_from_the_second_stage_on(keys: int, exponent: float) -> None:
    run = simulated(zipf_rows(keys, exponent, 200_000)).play()
    check(run)
    assert run.reports[0].backlog_rows > 0
    assert run.reports[1].forwarded_rows > 0
    assert all(report.max_over_mean and report.max_over_mean <= 1.10 for report in run.reports[1:-1])
    assert sum(run.makespans) <= 1.02 * len(run.rows) / 8
    assert sum(report.forwarded_rows for report in run.reports) < 0.01 * len(run.rows)


@SKEWS
def test_static_gives_what_the_hash_gives(keys: int, exponent: float) -> None:
    run = simulated(zipf_rows(keys, exponent, 100_000), policy="static").play()
    check(run)
    plan = first_plan(run.job)
    hashed = np.bincount([plan.tail_task(run.texts[number]) for number in range(keys)], np.bincount(run.rows), 8)
    assert np.array_equal(sum(report.processed for report in run.reports), hashed)
    assert all(report.backlog_rows == report.forwarded_rows == 0 for report in run.reports)
    assert all(plan.head == {} for plan in run.plans)


@pytest.mark.parametrize("waves", [(1,), (1, 9), (1, 1, 1, 1, 1)], ids=["one wave", "two waves", "equal waves"])
@pytest.mark.parametrize("reducers", [1, 8])
def test_rows_are_conserved_however_the_input_is_cut(waves: tuple[float, ...], reducers: int) -> None:
    run = simulated(zipf_rows(1000, 1.3, 30_000), waves, reducers=reducers).play()
    check(run)
    if len(waves) == 1 and reducers > 1:
        assert run.reports[0].backlog_rows > 0
        assert run.reports[1].max_over_mean
        assert run.reports[1].max_over_mean <= 1.10


def test_keys_that_change_half_way_are_caught_by_the_budget() -> None:
    """The hot key of the first fifth never comes again; another one takes its place."""
    run = simulated(np.array([10_000, 40_000, *[50] * 1000]))
    run.rows = np.concatenate([run.rows[run.rows == 0], run.rows[run.rows == 1], run.rows[run.rows > 1]])
    check(run.play())
    assert run.plans[1].budget_rows is not None


def test_a_stage_that_costs_more_than_it_saves_is_not_started() -> None:
    """One probe, one big wave, and a drain if that pays."""
    counts = zipf_rows(5000, 1.4, 50_000)
    run = simulated(counts, stage_overhead=None)
    run.overhead_seconds = 0.1 * 50_000 / 8
    check(run.play())
    assert len(run.reports) <= 3
    assert "admitted at once" in run.decisions[0].sentence


def test_rows_are_drawn_as_the_plan_says_one_by_one() -> None:
    run = simulated(zipf_rows(300, 1.4, 50_000), (1, 9)).play()
    plan = run.plans[1]
    assert any(len(shares) > 1 for shares in plan.head.values())
    rows = np.arange(3000)
    starts = run._unit_starts
    units = np.searchsorted(starts, rows, side="right") - 1
    one_by_one = [
        plan.task_of(run.texts[run.rows[row]], pack_origin(int(unit), int(row - starts[unit])))
        for row, unit in zip(rows.tolist(), units.tolist(), strict=True)
    ]
    assert run.tasks_of(plan, rows).tolist() == one_by_one


def test_a_run_of_plain_hashing_can_be_replayed_under_another_policy() -> None:
    run = simulated(zipf_rows(400, 1.3, 20_000), reducers=6, policy="static").play()
    adaptive, static = (replay(run.job, run.reports, policy) for policy in ("adaptive", "static"))
    assert adaptive.makespan_over_bound is not None
    assert static.makespan_over_bound is not None
    assert adaptive.makespan_over_bound < static.makespan_over_bound
