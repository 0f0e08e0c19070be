"""Which engine ``auto`` takes, and the plan of an engine that takes in everything at once."""

from __future__ import annotations

import numpy as np
import pytest

from skewless.documents.decision import EngineChoice
from skewless.documents.job import Job
from skewless.planner.engine_choice import KEYS_OF_A_TASK, choose_engine, plan_of_choice
from skewless.planner.first_plan import first_plan
from skewless.planner.forecast.key_sample import KeyCounts, KeySample
from tests.unit import synthetic

ROWS = 10_000_000


def job(**algebra: float | None) -> Job:
    frozen = synthetic.job([ROWS], reducers=8)
    spec = frozen.spec.model_copy(update={"engine": "auto"})
    changed = {name: one.model_copy(update=algebra) for name, one in frozen.algebra.items()}
    return frozen.model_copy(update={"spec": spec, "algebra": changed})


def chosen(frozen: Job, sampled: np.ndarray, **given: bool) -> EngineChoice:
    return choose_engine(frozen, KeyCounts(sampled.astype(np.float64)), ROWS, 32, **given)


#: A sample of 200,000 rows: every key once or twice; of a hundred keys; and with a key that has four of ten rows.
MANY, FEW = np.full(150_000, 1.3), np.full(100, 2_000.0)
HOT = np.append(MANY, 130_000.0)


def test_few_keys_are_combined_where_they_are_read() -> None:
    assert chosen(job(row_seconds=1e-6), FEW).engine == "combine"


def test_many_keys_are_sent_once_and_all_prices_are_told() -> None:
    choice = chosen(job(row_seconds=1e-6, state_bytes=200), MANY)
    assert choice.engine == "bypass"
    assert 0 < choice.bypass_seconds < min(choice.staged_seconds, choice.combine_seconds)
    for priced in (choice.combine_seconds, choice.bypass_seconds, choice.staged_seconds):
        assert f"{priced:,.1f} s" in choice.sentence


@pytest.mark.parametrize("row_seconds", [None, 1e-3], ids=["unknown", "slow"])
def test_rows_that_may_cost_more_for_some_keys_are_routed_in_stages(row_seconds: float | None) -> None:
    choice = chosen(job(row_seconds=row_seconds, state_bytes=200), MANY)
    assert (choice.engine, choice.bypass_seconds) == ("staged", 0.0)


def test_a_hot_key_without_a_text_makes_the_other_slots_wait() -> None:
    frozen = job(row_seconds=1e-6, state_bytes=200)
    split, whole = chosen(frozen, HOT, named=True), chosen(frozen, HOT, named=False)
    assert whole.bypass_seconds > 2 * split.bypass_seconds
    assert whole.engine != "bypass"


def test_heavy_keys_are_placed_so_that_no_task_has_more_than_its_share_and_few_are_split() -> None:
    frozen = job(row_seconds=1e-6)
    counts = np.array([40_000, 9_000, 5_000, 2_000, *[10] * 15_000])
    names = [f"k{number}" for number in range(len(counts))]
    seen = KeySample(counts, names).histogram(10, 10_000)
    choice = EngineChoice(engine="bypass", keys=1_000_000, sentence="bypass")
    plan = plan_of_choice(frozen, first_plan(frozen), choice, seen)
    tasks = len(plan.tasks)
    assert 1_000_000 / tasks <= KEYS_OF_A_TASK < 2 * 1_000_000 / tasks * 8
    assert set(plan.head) == set(names[:4])
    loads = np.full(tasks, 150_000 / tasks)
    for key, weights in plan.head.items():
        for task, weight in weights:
            loads[task] += counts[names.index(key)] * weight / (1 << 16)
    assert loads.max() < 1.01 * counts.sum() / tasks
    assert sum(len(weights) for weights in plan.head.values()) <= 4 + tasks - 1


def test_no_key_is_split_where_whole_keys_fill_the_tasks_evenly() -> None:
    frozen = job(row_seconds=1e-6)
    counts = np.array([700, 500, 400, *[10] * 20_000])
    names = [f"k{number}" for number in range(len(counts))]
    seen = KeySample(counts, names).histogram(10, 10_000)
    choice = EngineChoice(engine="bypass", keys=4_000_000, sentence="bypass")
    plan = plan_of_choice(frozen, first_plan(frozen), choice, seen)
    assert set(plan.head) == set(names[:3])
    assert all(len(weights) == 1 for weights in plan.head.values())


def test_nothing_is_placed_where_nothing_is_known() -> None:
    frozen = job(row_seconds=1e-6)
    plan = plan_of_choice(frozen, first_plan(frozen), EngineChoice(engine="bypass", sentence="bypass"))
    assert (plan.engine, plan.head, plan.factors, plan.waves) == ("bypass", {}, {}, (0, len(frozen.waves)))
