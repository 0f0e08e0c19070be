"""A call of the planner grows as its documents do: four times the tasks and keys must not take 16 times as long.

Seconds are those of this process alone, and the least of a few calls, so that other work on the machine counts little.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from skewless.documents.job import Algebra, Job
from skewless.documents.stage_report import StageReport
from skewless.planner.first_plan import first_plan
from skewless.planner.planner import plan_next_stage
from skewless.routing.plan import RoutingPlan
from tests.unit import synthetic
from tests.unit.synthetic import MERGEABLE, WHOLE

pytestmark = pytest.mark.long

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
    reducers = {"reducers": tasks, "head_limit": 100_000, "ring_bits": 17, "tokens": 16, **routing}
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
def test_four_times_the_tasks_and_keys_take_about_four_times_as_long(algebra: Algebra, routing: dict[str, Any]) -> None:
    small, large = (seconds(*documents(tasks, algebra, **routing)) for tasks in (500, 2000))
    assert large < AT_MOST * small


def test_key_buckets_for_thousands_of_free_slots_take_about_as_long_as_there_are_slots() -> None:
    def needed(reducers: int) -> float:
        job = synthetic.job([20_000, 10**9], reducers=reducers, slots=8 * reducers, max_factor=16, ring_bits=17)
        plan = first_plan(job)
        return seconds(job, plan, synthetic.report(plan, {f"key-{number}": 20 for number in range(1000)}))

    assert needed(2000) < AT_MOST * needed(500)


def test_a_call_for_many_keys_and_tasks_takes_seconds_not_minutes() -> None:
    counts = synthetic.zipf_rows(20_000, 1.0, 2_000_000)
    job = synthetic.job([2_000_000, 90_000_000], reducers=2000, ring_bits=15, tokens=16)
    plan = first_plan(job)
    report = synthetic.report(plan, {f"key-{number}": int(rows) for number, rows in enumerate(counts)})
    began = time.process_time()
    decision = plan_next_stage(job, plan, report)
    assert time.process_time() - began < 3
    assert decision.certificate is not None
    assert decision.certificate.gap is not None
    assert decision.certificate.gap < 0.02
