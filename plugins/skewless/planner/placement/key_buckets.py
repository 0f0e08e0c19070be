"""How many key buckets each reducer gets: so many that every slot has a task, or that no task is too full.

SEP-32 doubles and halves the elasticity factor of a reducer. A bucket is a hash of the key, so this moves keys that
nobody has named, which a reducer of the ring cannot do without changing its tokens.
"""

from __future__ import annotations

import heapq

import numpy as np

from skewless.planner.placement.placement import Rows
from skewless.routing.plan import RoutingPlan
from skewless.routing.ring import MOST_BUCKETS

#: Merged siblings must fit into this part of what one task should hold, so that no split is undone at once.
HYSTERESIS = 0.5


def for_free_slots(plan: RoutingPlan, tail: Rows, free: int) -> dict[int, int]:
    """Factors above 1 where the reducers with the most tail are split, until as few as can be of the slots are free."""
    factors = {reducer: plan.factors.get(reducer, 1) for reducer in plan.ring.reducers}
    rows = np.bincount(plan.task_table[:, 0], weights=tail).tolist()
    fullest_first = [(-rows[reducer] / factor, reducer) for reducer, factor in factors.items()]
    heapq.heapify(fullest_first)
    while fullest_first:
        _, reducer = heapq.heappop(fullest_first)
        factor = factors[reducer]
        # Neither limit will ever be wider: a reducer that cannot be split now will not be split later.
        if factor <= free and 2 * factor <= MOST_BUCKETS:
            free -= factor
            factors[reducer] = 2 * factor
            heapq.heappush(fullest_first, (-rows[reducer] / (2 * factor), reducer))
    return _above_one(factors)


def for_full_tasks(plan: RoutingPlan, tail: Rows, most: float) -> dict[int, int]:
    """Factors above 1 where each reducer with a task whose tail is above ``most`` has twice as many buckets."""
    full = np.unique(plan.task_table[tail > most, 0]).tolist()
    return _above_one({**plan.factors, **{one: min(MOST_BUCKETS, 2 * plan.factors.get(one, 1)) for one in full}})


def for_small_tasks(plan: RoutingPlan, tail: Rows, most: float) -> dict[int, int]:
    """Factors above 1 where buckets are merged as long as the tail of each that comes of two is at most ``most``."""
    reducers = plan.task_table[:, 0]
    factors = {}
    for reducer, factor in plan.factors.items():
        start, left = int(np.searchsorted(reducers, reducer)), factor
        rows = tail[start : start + factor]
        while left > 1 and float((rows[: left // 2] + rows[left // 2 :]).max()) <= most:
            left //= 2
            rows = rows[:left] + rows[left:]
        factors[reducer] = left
    return _above_one(factors)


def _above_one(factors: dict[int, int]) -> dict[int, int]:
    return {reducer: factor for reducer, factor in sorted(factors.items()) if factor > 1}
