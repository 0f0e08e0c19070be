"""``static``: the ring as it was at the start, whatever happens. What a hash partitioner gives.

It proposes nothing, so the planner stands still. The measure that the others are held to.
"""

from __future__ import annotations

from collections.abc import Sequence

from skewless.documents.job import Job
from skewless.planner.forecast.forecast import Forecast
from skewless.planner.policies.proposal import Proposal


def propose(job: Job, forecast: Forecast) -> Sequence[Proposal]:
    """Nothing."""
    del job, forecast
    return ()
