"""Key buckets under ``adaptive``: how full they are taken to be, and when there are more or fewer of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks.staged import simulate
from benchmarks.workloads import zipf
from skewless.planner.first_plan import first_plan
from skewless.planner.forecast.forecast import Forecast
from skewless.planner.placement.ring_changes import for_free_slots, for_full_tasks, for_small_tasks
from skewless.planner.policies.adaptive import propose
from skewless.routing.plan import RoutingPlan
from tests.unit import synthetic

#: Keys that no report names; some buckets have more of them than others.
UNNAMED = {f"key-{number}": 100 + number for number in range(60)}


def plan_with(factors: dict[int, int], **routing: Any) -> RoutingPlan:
    job = synthetic.job([1, 1], policy="adaptive", **{"reducers": 2, "slots": 8, **routing})
    return first_plan(job).model_copy(update={"factors": factors})


def after(plan: RoutingPlan, wave: int = 0, left: float = 1.0, **routing: Any) -> Forecast:
    """After a stage that had the unnamed keys queued, and left that part of them over."""
    seen = sum(UNNAMED.values())
    routing = {"reducers": 2, "slots": 8, **routing}
    job = synthetic.job([seen, wave] if wave else [seen], policy="adaptive", **routing)
    report = synthetic.report(plan, UNNAMED, {key: int(left * rows) for key, rows in UNNAMED.items()}, head=[])
    return Forecast.after(job, plan, report)


def queued(plan: RoutingPlan) -> np.ndarray:
    rows = np.zeros(len(plan.tasks))
    for key, count in UNNAMED.items():
        rows[plan.tail_task(key)] += count
    return rows


@pytest.mark.parametrize("factors", [{}, {0: 2}, {0: 1, 1: 4}, {0: 8, 1: 4}], ids=str)
def test_the_tail_of_a_key_bucket_is_what_the_stage_left_in_it(factors: dict[int, int]) -> None:
    plan = plan_with({0: 8, 1: 4})
    forecast = after(plan)
    # Buckets that are merged add up; what nobody has seen apart is taken to be alike.
    known = forecast.plan_with(factors=factors)
    assert forecast.tail_rows(known) == pytest.approx(queued(known))
    assert forecast.tail_rows(plan) == pytest.approx([load.backlog_rows for load in forecast.report.tasks])


def test_buckets_are_for_free_slots_for_full_tasks_and_merged_where_they_are_small() -> None:
    plan = plan_with({0: 4, 1: 1})
    tail = np.array([10.0, 20.0, 30.0, 40.0, 500.0])
    assert for_free_slots(plan, tail, free=3) == {0: 4, 1: 4}
    assert for_full_tasks(plan, tail, 39.0) == {0: 8, 1: 2}
    assert for_full_tasks(plan, tail, 499.0) == {0: 4, 1: 2}
    assert for_small_tasks(plan, tail, 100.0) == {}
    assert for_small_tasks(plan, tail, 60.0) == {0: 2}  # 0 and 2 are one again, and 1 and 3
    assert for_small_tasks(plan, tail, 59.0) == {0: 4}


@pytest.mark.parametrize(("rows", "reducers"), [(400, 16), (100, 8), (0, 4), (1_000_000, 64)])
def test_so_many_reducers_are_kept_as_a_task_is_worth_its_price(rows: int, reducers: int) -> None:
    """The square root of rows times slots over the price of a task, within the range."""
    job = synthetic.job([1, rows], policy="adaptive", reducers=32, reducer_range=[4, 64])
    forecast = Forecast.after(job, first_plan(job), synthetic.report(first_plan(job), {"a": 1}))
    (one,) = [one for one in propose(job, forecast) if "reducers" in one.action]
    assert one.ring is not None
    assert len(one.ring.tokens) == reducers


def test_a_split_key_that_has_cooled_is_whole() -> None:
    """At first it has 60 % of the rows, and none after a third of them."""
    hot = np.arange(30_000) < 10_000
    random = np.random.default_rng(0)
    keys = np.where(hot & (random.random(30_000) < 0.6), 1_000_000, zipf(2_000, 1.0, 30_000, 0))
    _, run = simulate(keys, 8, "adaptive", (1.0,) * 10, in_order=True)
    pieces = [len(plan.head.get("1000000", ())) for plan in run.plans]
    assert max(pieces) > 4
    assert max(pieces[6:]) <= 1
