"""Whole runs on synthetic keys: the planner's promises, stage by stage, in arithmetic alone."""

from __future__ import annotations

import numpy as np
import pytest

from skewless.ledger import balance
from skewless.planner import first_plan
from tests.core.synthetic import SyntheticRun, zipf_rows

SKEWS = pytest.mark.parametrize(
    ("keys", "exponent"), [(20_000, 1.0), (5000, 1.2), (2000, 1.6)], ids=["natural", "skewed", "very skewed"]
)


def check(run: SyntheticRun) -> None:
    """Each row is reduced once, and the ledger says so."""
    assert np.array_equal(run.reduced, np.bincount(run.rows, minlength=len(run.keys)))
    assert balance(run.job, run.reports, int(run.reduced.sum())).problems == ()
    assert run.reports[-1].backlog_rows == 0
    assert len(run.reports) <= run.job.last_stage + 1


@SKEWS
def test_adaptive_runs_even_from_the_second_stage_on(keys: int, exponent: float) -> None:
    run = SyntheticRun.of(zipf_rows(keys, exponent, 200_000), (1, 4, 15, 80)).play()
    check(run)
    assert run.reports[0].backlog_rows > 0
    assert run.reports[1].forwarded_rows > 0
    assert max(report.max_over_mean for report in run.reports[1:]) <= 1.10
    assert sum(report.forwarded_rows for report in run.reports) < 0.01 * len(run.rows)


@SKEWS
def test_static_gives_what_the_hash_gives(keys: int, exponent: float) -> None:
    run = SyntheticRun.of(zipf_rows(keys, exponent, 100_000), (1, 4, 15, 80), policy="static").play()
    check(run)
    plan = first_plan(run.job)
    hashed = np.bincount([plan.tail_task(run.keys[number]) for number in range(keys)], np.bincount(run.rows), 8)
    assert np.array_equal(sum(report.processed for report in run.reports), hashed)
    assert all(report.backlog_rows == report.forwarded_rows == 0 for report in run.reports)
    assert all(plan.head == {} for plan in run.plans)


@pytest.mark.parametrize("waves", [(1,), (1, 9), (1, 1, 1, 1, 1)], ids=["one wave", "two waves", "equal waves"])
@pytest.mark.parametrize("reducers", [1, 8, 16])
def test_rows_are_conserved_however_the_input_is_cut(waves: tuple[float, ...], reducers: int) -> None:
    run = SyntheticRun.of(zipf_rows(1000, 1.3, 30_000), waves, reducers=reducers).play()
    check(run)
    if len(waves) == 1 and reducers > 1:
        assert run.reports[0].backlog_rows > 0
        assert run.reports[1].max_over_mean <= 1.10


def test_a_single_key_is_split_over_all_reducers() -> None:
    run = SyntheticRun.of(np.array([50_000]), (1, 4, 15, 80)).play()
    check(run)
    assert max(report.max_over_mean for report in run.reports[1:]) <= 1.10


def test_keys_that_change_half_way_are_caught_by_the_budget() -> None:
    """The hot key of the first fifth never comes again; another one takes its place."""
    run = SyntheticRun.of(np.array([10_000, 40_000, *[50] * 1000]), (1, 4, 15, 80))
    run.rows = np.concatenate([run.rows[run.rows == 0], run.rows[run.rows == 1], run.rows[run.rows > 1]])
    check(run.play())
    assert run.plans[1].budget_rows is not None


def test_the_same_input_gives_the_same_decisions() -> None:
    first, second = (SyntheticRun.of(zipf_rows(1000, 1.2, 20_000), (1, 4, 15, 80)).play() for _ in range(2))
    assert [one.to_json() for one in first.decisions] == [one.to_json() for one in second.decisions]


def test_rows_are_drawn_as_the_plan_says_one_by_one() -> None:
    run = SyntheticRun.of(zipf_rows(300, 1.4, 5000), (1, 9)).play()
    plan = run.plans[1]
    assert any(len(shares) > 1 for shares in plan.head.values())
    origins = np.arange(1000)
    one_by_one = [plan.task_of(run.keys[run.rows[origin]], int(origin)) for origin in origins]
    assert run.tasks_of(plan, origins).tolist() == one_by_one
