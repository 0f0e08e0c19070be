"""``w_choices``: the few heavy keys may go to every task, all others to two choices.

Nasir et al., "When two choices are not enough" (ICDE 2016): as ``d_choices``, but without a bound
on the choices of a head key. The best balance of the three, for the most partial states.
"""

from __future__ import annotations

from collections.abc import Sequence

from skewless.documents.job import Job
from skewless.planner.forecast.forecast import Forecast
from skewless.planner.placement.greedy_d import placement_in_words, pour_head
from skewless.planner.policies.proposal import Proposal


def propose(job: Job, forecast: Forecast) -> Sequence[Proposal]:
    """Head keys over all tasks, other named keys over two choices, afresh."""
    keys, tail = forecast.keys, forecast.tail_rows(forecast.plan)
    found = pour_head(keys, forecast.head_loads, tail, lambda _, tasks: tasks, splittable=job.splittable)
    if found is None:
        return ()
    placement, head, tasks = found
    words = (
        f"place {head:,} heavy keys over all {tasks} tasks, and {len(keys) - head:,} others, "
        f"two choices each: {placement_in_words(placement, keys)}"
    )
    return (Proposal("w choices", words, placement),)
