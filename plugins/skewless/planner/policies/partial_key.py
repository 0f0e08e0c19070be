"""``partial_key``: each key has two choices (tasks that may get its rows), and goes to the less loaded of them.

Partial Key Grouping (Nasir et al., ICDE 2015, here PKG): key splitting, so that nobody has to
remember which choice a key went to, and local load estimation, so that no source has to ask.
Here one planner estimates for all sources: the recorded tail, and what it has placed so far.

Only the keys that the forecast names are given choices. A light key goes where the ring says:
a plan is enacted in Spark SQL, which has no state from one row to the next that could tell it
which choice is less loaded, and a plan that named every key would grow with their number.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from skewless.documents.job import Job
from skewless.planner.forecast.forecast import Forecast
from skewless.planner.placement.head_keys import placement_in_words, pour_over_choices
from skewless.planner.policies.proposal import Proposal

#: As in the paper; a key that is too heavy for two tasks has more of them under ``d_choices``.
_CHOICES = 2


def propose(job: Job, forecast: Forecast) -> Sequence[Proposal]:
    """All named keys over two choices each, afresh."""
    plan, keys = forecast.plan, forecast.keys
    if plan.task_count == 1 or not keys:
        return ()
    placement = pour_over_choices(
        keys, forecast.head_loads, forecast.tail_rows(plan), np.full(len(keys), _CHOICES), splittable=job.splittable
    )
    words = f"place {len(keys):,} keys, {_CHOICES} choices each: {placement_in_words(placement, keys)}"
    return (Proposal("partial key", words, placement),)
