"""``w_choices``: the few heavy keys may go to every task, all others to two choices.

Nasir et al., "When two choices are not enough" (ICDE 2016): as ``d_choices``, but without a bound on the choices of a
head key. The best balance of the three, for the most partial states.
"""

from __future__ import annotations

from collections.abc import Sequence

from skewless.documents.job import Job
from skewless.planner.forecast.forecast import Forecast
from skewless.planner.placement.head_keys import pour_head
from skewless.planner.policies.proposal import Proposal


def propose(job: Job, forecast: Forecast) -> Sequence[Proposal]:
    """Head keys over all tasks, other named keys over two choices, afresh."""
    tail = forecast.tail_rows(forecast.plan)
    found = pour_head(forecast.keys, forecast.head_loads, tail, lambda _, tasks: tasks, splittable=job.splittable)
    return () if found is None else (Proposal("w choices", *found),)
