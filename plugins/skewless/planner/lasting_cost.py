"""What a lasting change costs until the end of the run, and how much of its predicted gain may be sampling error.

A policy that moves arcs of the ring or splits reducers, and places no keys, cannot undo the change in the next stage.
So the planner compares such a plan with standing still over all stages that are left, not over the next one
alone, and its predicted gain must exceed the likely error of the prediction.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from skewless.bounds import makespan
from skewless.documents.job import Job
from skewless.planner.forecast.forecast import Forecast
from skewless.planner.forecast.forecast_error import dispersion
from skewless.planner.placement.placement import Placement
from skewless.routing.plan import RoutingPlan

#: Standard errors that a gain must exceed. Of 4,000 decisions on 400 random workloads none was wrong by more; with 0.5
#: one run took a quarter longer than without the move.
SURE = 1.5


class Rest(NamedTuple):
    """The stages after the next one.

    Attributes:
        later_rows: the sum of their makespans, in rows, if the plan stays.
        error_rows: by how much the predicted gain may be too high, in rows, over all stages that are left; 0 if the
            plan moves nothing.
    """

    later_rows: float
    error_rows: float


def rest_of_run(job: Job, forecast: Forecast, routing: RoutingPlan, placement: Placement) -> Rest:
    """What is left of the run under a plan that is kept to its end.

    The rows that change their task are predicted from a sample: the largest change has an error of
    ``sqrt(f n (1 + N/S))`` rows as in ``skewless.planner.schedule``, over all N rows to come. Waves in order are no
    sample: the rows to come may be of other keys, so the error is the whole change.

    Args:
        job: the frozen job.
        forecast: of the next stage.
        routing: ring and factors of the plan.
        placement: of its head keys.
    """
    if not forecast.wave_rows:
        return Rest(0.0, 0.0)
    stages = 1.0 + forecast.later_rows / forecast.wave_rows
    still = forecast.wave_loads(forecast.plan, forecast.placement_now) * stages
    loads = forecast.wave_loads(routing, placement) * stages
    before, after = (
        dict(zip(plan.tasks, rows.tolist(), strict=True)) for plan, rows in ((forecast.plan, still), (routing, loads))
    )
    moved = max(abs(before.get(task, 0.0) - after.get(task, 0.0)) for task in {**before, **after})
    spread = dispersion(forecast.plan, forecast.report)
    error = moved if job.in_order else math.sqrt(spread * moved * (1.0 + forecast.scale * stages))
    return Rest(makespan(loads, forecast.parallelism) * (1.0 - 1.0 / stages), SURE * error)
