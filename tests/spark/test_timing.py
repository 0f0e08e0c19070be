"""Which keys are timed apart, and when a task is slow and not its keys dear."""

import numpy as np
import pytest

from skewless.documents.stage_report import StageReport
from skewless.planner.first_plan import first_plan
from skewless.planner.forecast.expected_rows import RowCosts
from skewless_spark.states.python_reduction import TIMED_KEYS, TIMED_ROWS, Stopwatch, timed_apart
from tests.unit import synthetic


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

    def update(groups: np.ndarray, _at: np.ndarray | None) -> None:
        now[0] += float((groups + 1).sum())

    watch = Stopwatch(lambda: now[0])
    groups = np.array([0, 1, 2, 1, 1])
    watch.timed(groups, np.bincount(groups), update)
    assert watch.of_groups(np.bincount(groups)).to_pylist() == [None, 6.0, None]
    assert watch.seconds == 10.0


def test_a_key_that_was_not_timed_is_taken_to_cost_as_much_as_others_that_were_not() -> None:
    plan = first_plan(synthetic.job([10_000], reducers=4))
    report: StageReport = synthetic.report(plan, {"hot": 5_000, "warm": 2_000, "cold": 1_000})
    timed = report.histogram.model_copy(update={"head_seconds": {"hot": 50.0}, "tail_seconds": 3.0})
    costs = RowCosts(report.model_copy(update={"histogram": timed}))
    hot, warm = costs.of_keys(["hot", "warm"]).tolist()
    assert hot / warm == pytest.approx(10.0)
    assert warm == costs.tail_cost
