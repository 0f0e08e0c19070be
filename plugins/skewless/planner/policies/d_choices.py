"""``d_choices``: the few heavy keys get as many choices (tasks that may get their rows) as they need, all others two.

Nasir et al., "When two choices are not enough" (ICDE 2016): a key may be heavier than two tasks' fair shares. The least
d is taken that lets no part of the head overload its tasks, since each choice may cost a state.
"""

from __future__ import annotations

from collections.abc import Sequence

from skewless.documents.job import Job
from skewless.planner.forecast.forecast import Forecast
from skewless.planner.placement.head_keys import enough_choices, pour_head
from skewless.planner.policies.proposal import Proposal


def propose(job: Job, forecast: Forecast) -> Sequence[Proposal]:
    """Head keys over d choices each, other named keys over two, afresh."""
    tail = forecast.tail_rows(forecast.plan)
    found = pour_head(forecast.keys, forecast.head_loads, tail, enough_choices, splittable=job.splittable)
    return () if found is None else (Proposal("d choices", *found),)
