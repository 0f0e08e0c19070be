"""Between which tasks keys may move from one plan to another."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from skewless.routing.plan import RoutingPlan


def earlier_tasks(before: RoutingPlan, plan: RoutingPlan) -> list[set[int]]:
    """For each task of a plan the tasks of an earlier plan that its keys may have been in, by their indices there.

    A task of the same name is always among them. There may be a few too many: the buckets of a reducer whose factor
    changed are not told apart. Keys that are split, or null, are in several tasks and are not looked at.

    Args:
        before: the earlier plan; its ring may have another size.
        plan: the plan.
    """
    numbers = {task: number for number, task in enumerate(before.tasks)}
    found = [{numbers[task]} if task in numbers else set[int]() for task in plan.tasks]
    bits = max(before.ring.ring_bits, plan.ring.ring_bits)
    owners, first, factors = (
        [_by_slot(one, table, bits) for one, table in zip((before, plan), tables, strict=True)]
        for tables in (
            (before.ring.slot_owners, plan.ring.slot_owners),
            (before.slot_tasks, plan.slot_tasks),
            (before.slot_factors, plan.slot_factors),
        )
    )
    changed = np.flatnonzero((owners[0] != owners[1]) | (factors[0] != factors[1]))
    pairs = first[0][changed].astype(np.int64) * len(plan.tasks) + first[1][changed]
    for slot in changed[np.unique(pairs, return_index=True)[1]].tolist():
        (old, new), (buckets_before, buckets) = (
            (pair[slot].item() for pair in first),
            (pair[slot].item() for pair in factors),
        )
        for number in range(new, new + buckets):
            found[number].update(range(old, old + buckets_before))
    for key in before.head.keys() | plan.head.keys():
        found[plan.task_of(key, 0)].add(before.task_of(key, 0))
    return found


def _by_slot(plan: RoutingPlan, by_slot: npt.NDArray[Any], bits: int) -> npt.NDArray[Any]:
    """What a plan says of each slot, by the slots of a ring of so many bits, which is at least as fine."""
    return np.repeat(by_slot, 1 << (bits - plan.ring.ring_bits))
