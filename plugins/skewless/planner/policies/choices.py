"""``partial_key``, ``d_choices`` and ``w_choices``: a key has a few choices, tasks that may get its rows.

``partial_key`` is Partial Key Grouping (Nasir et al., ICDE 2015, here PKG): each key has two choices, and its rows go
to the less loaded of them: key splitting, so that nobody has to remember which choice a key went to, and local load
estimation, so that no source has to ask. Here one planner estimates for all sources: the recorded tail, and what it has
placed so far. Only the keys that the forecast names are given choices. A light key goes where the ring says: a plan is
enacted in Spark SQL, which has no state from one row to the next that could tell it which choice is less loaded, and a
plan that named every key would grow with their number.

A key may be heavier than two tasks' fair shares (Nasir et al., "When two choices are not enough", ICDE 2016). So the
few heavy keys of ``d_choices`` have as many choices as they need: the least d that lets no part of the head overload
its tasks, since each choice may cost a state. Those of ``w_choices`` may go to every task: the best balance of the
three, for the most partial states. All others have two.
"""

from collections.abc import Callable, Sequence

import numpy as np

from skewless.documents.job import Job
from skewless.planner.forecast.forecast import Forecast
from skewless.planner.placement.head_keys import placement_in_words, pour_head, pour_over_choices
from skewless.planner.placement.placement import Proposal, Rows

#: As in the paper; a key that is too heavy for two tasks has more of them under ``d_choices``.
_CHOICES = 2


def propose_two_choices(job: Job, forecast: Forecast) -> Sequence[Proposal]:
    """All named keys over two choices each, afresh."""
    plan, keys = forecast.plan, forecast.keys
    if plan.task_count == 1 or not keys:
        return ()
    placement = pour_over_choices(
        keys, forecast.head_loads, forecast.tail_rows(plan), np.full(len(keys), _CHOICES), splittable=job.splittable
    )
    sentence = f"place {len(keys):,} keys, {_CHOICES} choices each: {placement_in_words(placement, keys)}"
    return (Proposal("partial key", sentence, placement),)


def propose_head_choices(
    action: str, choices: Callable[[Rows, int], int], job: Job, forecast: Forecast
) -> Sequence[Proposal]:
    """Head keys over so many choices each, other named keys over two, afresh."""
    tail = forecast.tail_rows(forecast.plan)
    poured = pour_head(forecast.keys, forecast.head_loads, tail, choices, splittable=job.splittable)
    return () if poured is None else (Proposal(action, *poured),)
