"""``w_choices``: the few heavy keys may go to every task, all others to two choices.

Nasir et al., "When two choices are not enough" (ICDE 2016): as ``d_choices``, but without a bound
on the choices of a head key. The best balance of the three, for the most partial states.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from skewless.documents.job import Job
from skewless.planner.forecast.forecast import Forecast
from skewless.planner.placement.greedy_d import heavy, placement_in_words, pour_over_choices
from skewless.planner.policies.proposal import Proposal


def propose(job: Job, forecast: Forecast) -> Sequence[Proposal]:
    """Head keys over all tasks, other named keys over two choices, afresh."""
    plan, keys, loads = forecast.plan, forecast.keys, forecast.head_loads
    tail, tasks = forecast.tail_rows(plan), len(plan.tasks)
    total = float(tail.sum() + loads.sum())
    if tasks == 1 or not keys or not total:
        return ()
    head = heavy(loads / total, tasks)
    placement = pour_over_choices(keys, loads, tail, np.where(head, tasks, 2), splittable=job.splittable)
    words = (
        f"place {int(head.sum()):,} heavy keys over all {tasks} tasks, and {int((~head).sum()):,} others, "
        f"two choices each: {placement_in_words(placement, keys)}"
    )
    return (Proposal("w choices", words, placement),)
