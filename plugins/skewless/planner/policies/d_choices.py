"""``d_choices``: the few heavy keys get as many choices (tasks that may get their rows) as they need, all others two.

Nasir et al., "When two choices are not enough" (ICDE 2016): with many tasks a key can be heavier
than two tasks' fair shares, and then Partial Key Grouping cannot balance it. The number d is the
least that lets no part of the head overload its tasks, since each choice may cost a state.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from skewless.documents.job import Job
from skewless.planner.forecast.forecast import Forecast
from skewless.planner.placement.greedy_d import enough_choices, heavy, placement_in_words, pour_over_choices
from skewless.planner.policies.proposal import Proposal


def propose(job: Job, forecast: Forecast) -> Sequence[Proposal]:
    """Head keys over d choices each, other named keys over two, afresh."""
    plan, keys, loads = forecast.plan, forecast.keys, forecast.head_loads
    tail, tasks = forecast.tail_rows(plan), len(plan.tasks)
    total = float(tail.sum() + loads.sum())
    if tasks == 1 or not keys or not total:
        return ()
    shares = loads / total
    head = heavy(shares, tasks)
    wanted = enough_choices(-np.sort(-shares[head]), tasks)
    placement = pour_over_choices(keys, loads, tail, np.where(head, wanted, 2), splittable=job.splittable)
    words = (
        f"place {int(head.sum()):,} heavy keys, {wanted} choices each, and {int((~head).sum()):,} others, two each: "
        f"{placement_in_words(placement, keys)}"
    )
    return (Proposal("d choices", words, placement),)
