"""Which waves the next stage admits.

A stage has a price. Without it rows go where an older and less accurate forecast sends them, and the error of the
forecast (``skewless.planner.forecast.forecast_error``) leaves tasks idle or rows over.
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from skewless.documents.job import Job
from skewless.documents.stage_report import StageReport
from skewless.planner.budget import BACKLOG_COST_ROWS
from skewless.planner.forecast.forecast_error import dispersion
from skewless.routing.plan import RoutingPlan

#: With the rows left over at that price, a budget is best where a task is above it with the
#: probability 1 / (1 + price), which leaves so many standard deviations of a task's error idle
#: or over: (1 + price) times the normal density at that point.
WASTE_PER_ERROR = (1.0 + BACKLOG_COST_ROWS) * NormalDist().pdf(NormalDist().inv_cdf(1.0 / (1.0 + BACKLOG_COST_ROWS)))


class Admission(NamedTuple):
    """The waves that the next stage admits, ``first <= wave < end``, and why in words."""

    waves: tuple[int, int]
    sentence: str


def next_waves(
    job: Job, plan: RoutingPlan, report: StageReport, overhead_rows: float, spread: float | None = None
) -> Admission:
    """Join as many of the next waves as makes the rest of the run shortest.

    The rest of the run is cut into stages by dynamic programming over the waves that are left:
    each stage costs its overhead and what the error of its forecast wastes; the more has been
    seen before it, the smaller that is. Last, a stage that drains.

    Args:
        job: its waves.
        plan: of the reported stage.
        report: of the last stage.
        overhead_rows: what a stage costs, in rows of the largest task.
        spread: see ``dispersion``; by default what the report says.
    """
    first, last = plan.waves[1], len(job.waves)
    seen = report.histogram.seen_rows
    if last - first <= 1 or not seen or not overhead_rows:
        return Admission((first, min(first + 1, last)), "")
    tasks, spread = len(plan.tasks), spread or dispersion(plan, report, job.in_order)
    reached = seen + np.cumsum([0, *(job.predicted_rows((wave, wave + 1), seen, first) for wave in range(first, last))])

    def waste(start: int, end: int) -> float:
        return wasted_rows(float(reached[end] - reached[start]), float(reached[start]), tasks, spread)

    left = last - first
    price = [0.0] * (left + 1)
    stop = [left] * left
    for start in reversed(range(left)):
        options = {end: waste(start, end) + price[end] for end in range(start + 1, left + 1)}
        # An overhead that is more than all rows there are would drown the difference between options.
        stage = min(overhead_rows, float(job.rows))
        stop[start] = min(options, key=lambda end: (options[end] + stage * _stages(stop, end, left), end))
        price[start] = options[stop[start]]
    waves = (first, first + stop[0])
    joined = stop[0] > 1
    words = f"waves {first} to {waves[1] - 1} are admitted at once, as a stage costs more than they would gain apart"
    return Admission(waves, words if joined else "")


def wasted_rows(rows: float, known: float, tasks: int, spread: float) -> float:
    """What the error of a forecast costs a stage, in rows of the largest task.

    Args:
        rows: predicted.
        known: rows seen, from which they are.
        tasks: they are shared out over.
        spread: see ``dispersion``.
    """
    return WASTE_PER_ERROR * math.sqrt(spread * rows / tasks * (1.0 + rows / known))


def _stages(stop: list[int], start: int, left: int) -> int:
    """Stages from here on under the choices made so far."""
    count = 1
    while start < left:
        start, count = stop[start], count + 1
    return count
