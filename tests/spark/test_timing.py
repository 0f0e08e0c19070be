"""Which keys are timed apart, and when a task is slow and not its keys dear."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from skewless.documents.stage_report import StageReport
from skewless.planner.first_plan import first_plan
from skewless.planner.forecast.expected_rows import RowCosts
from skewless_spark.aggregates.stopwatch import TIMED_KEYS, TIMED_ROWS, Stopwatch, timed_apart
from skewless_spark.stage.measured_stage import task_loads
from tests.unit import synthetic
from tests.unit.synthetic import zipf_rows


def test_the_heaviest_keys_are_timed_apart_and_no_more_than_a_limit() -> None:
    counts = np.arange(1, 1001)
    apart = timed_apart(counts)
    assert apart.tolist() == list(range(1000 - TIMED_KEYS, 1000))
    assert timed_apart(np.full(1000, 20)).tolist() == list(range(TIMED_KEYS)), "of equals the first"


def test_in_a_small_batch_keys_of_a_few_rows_are_timed_apart() -> None:
    """As in a probe: with 20 rows, 1 in 64 of the batch, as the least, it would show the cost of far fewer keys."""
    counts = np.array([*[TIMED_ROWS] * 30, *[TIMED_ROWS - 1] * 150])
    assert timed_apart(counts).tolist() == list(range(30))
    assert timed_apart(np.array([2, 1, 2])).tolist() == [0, 2]


def test_seconds_of_a_key_that_was_timed_are_its_own() -> None:
    now = [0.0]

    def update(groups: np.ndarray, at: np.ndarray | None) -> None:
        del at
        now[0] += float((groups + 1).sum())

    watch = Stopwatch(lambda: now[0])
    groups = np.array([0, 1, 2, 1, 1])
    watch.timed(groups, np.bincount(groups), update)
    assert watch.of_groups(np.bincount(groups)).to_pylist() == [None, 6.0, None]
    assert watch.seconds == 10.0


def counted(costs: np.ndarray, rows: np.ndarray, speed: float) -> dict[str, Any]:
    """What a task's files say of it whose keys have so many rows of such costs, in seconds."""
    apart = timed_apart(rows)
    light = np.setdiff1d(np.arange(len(rows)), apart)
    rates = costs[apart] / speed
    return {
        "rows": int(rows.sum()), "left_over": 0, "states": len(rows), "setup_seconds": 0.0,
        "task_seconds": float((costs * rows).sum()) / speed, "key_seconds": float((rates * rows[apart]).sum()),
        "light_rows": int(rows[light].sum()), "light_squares": float((rows[light] ** 2).sum()),
        "timed_keys": len(apart), "rates": float(rates.sum()), "rates_squared": float((rates**2).sum()),
    }  # fmt: skip


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("unlike", "speed"), [(1.0, 1.0), (0.0, 1 / 3), (0.5, 1 / 3)])
def test_a_task_is_slow_where_its_light_rows_take_longer_than_dear_keys_would_explain(
    seed: int, unlike: float, speed: float
) -> None:
    """Costs of keys are log-normal; the last of eight tasks is as fast as said. Each has 1,250 rows."""
    random = np.random.default_rng(seed)
    plan = first_plan(synthetic.job([10_000], reducers=8))
    loads = {}
    for number in range(8):
        rows = zipf_rows(600, 1.0, 1_250)
        costs = 0.001 * random.lognormal(0.0, unlike, len(rows))
        loads[number] = counted(costs, rows, speed if number == 7 else 1.0)
    *others, last = [load.slowness for load in task_loads(plan, loads)]
    assert others == [1.0] * 7 or unlike == 0.0
    assert all(one == pytest.approx(1.0) for one in others)
    assert last == pytest.approx(1 / speed, rel=0.6 * unlike + 0.01)


def test_a_key_that_was_not_timed_is_taken_to_cost_as_much_as_others_that_were_not() -> None:
    plan = first_plan(synthetic.job([10_000], reducers=4))
    report: StageReport = synthetic.report(plan, {"hot": 5_000, "warm": 2_000, "cold": 1_000})
    timed = report.histogram.model_copy(update={"head_seconds": {"hot": 50.0}, "tail_seconds": 3.0})
    costs = RowCosts(report.model_copy(update={"histogram": timed}))
    hot, warm = costs.of_keys(["hot", "warm"]).tolist()
    assert hot / warm == pytest.approx(10.0)
    assert warm == costs.tail_cost
