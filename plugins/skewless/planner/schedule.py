"""Which waves the next stage admits, and how many rows each task may reduce in it.

A stage has a price. Without it rows go where an older and less accurate forecast sends them, and the error of the
forecast (``skewless.planner.forecast.forecast_error``) leaves tasks idle or rows over.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist, fmean
from typing import NamedTuple

import numpy as np

from skewless.documents.job import Job
from skewless.documents.stage_report import StageReport
from skewless.planner.forecast.forecast import Forecast
from skewless.planner.forecast.forecast_error import dispersion
from skewless.planner.placement.placement import Rows
from skewless.routing.plan import RoutingPlan

#: Budget of the policies that do not choose their own, as a multiple of the fair share.
USUAL_BUDGET = 1.02
#: What a row left over costs, in rows reduced: it is written, read and shuffled once more, and
#: if the next plan moves it, forwarded.
BACKLOG_COST_ROWS = 0.4
#: The same where waves come in order. Such rows are reduced in Python, but for native aggregates whose states go on, at
#: 9.7 us of CPU each (decision 0028); beside that the way through files and the exchange once more is short
#: (``cost.ROW_SECONDS``: 0.6 us).
BACKLOG_IN_ORDER_ROWS = 0.1
#: Budgets that are compared, as multiples of the mean predicted load.
BUDGETS = tuple(np.arange(0.70, 1.31, 0.01).tolist())
#: The same where waves come in order: most tasks may get far fewer rows than predicted.
BUDGETS_IN_ORDER = tuple(np.arange(0.30, 1.31, 0.01).tolist())
#: The same at the last input: what is left over then is left over only once more.
BUDGETS_AT_THE_END = tuple(np.arange(0.02, 1.31, 0.01).tolist())


class Budget(NamedTuple):
    """Rows that each task may reduce, or None for all of them, and why in words."""

    rows: int | None
    sentence: str


def choose_budget(
    forecast: Forecast, expected: Rows, spread: float, last_input: bool, overhead_rows: float,
    missed: Rows | None = None, splittable: bool = True,
) -> Budget:  # fmt: skip
    """The budget with the least expected cost, or none.

    A task that has more rows than the budget leaves some over, at a price; one that has fewer is idle for the rest of
    the stage. Without a budget the stage waits for the task whose forecast is worst, but needs no other stage to drain.

    ``expected`` are the rows predicted for each task, off by a ``spread`` (``dispersion``). Where waves come in order,
    ``misses`` tell how the next forecast will be missed too. A stage costs ``overhead_rows`` of the largest task.
    """
    tasks = len(expected)
    if tasks == 1 or not forecast.wave_rows or not forecast.rows_are_alike or tasks > forecast.parallelism:
        return Budget(None, "")
    fresh = forecast.wave_rows / max(1, forecast.queued_rows)
    error = np.sqrt(spread * np.maximum(1.0, expected * fresh * (1.0 + min(forecast.scale, 1e6))))
    drain = overhead_rows if last_input else 0.0
    fair = float(expected.mean())
    if missed is not None and len(missed):
        loads = np.maximum(fair + missed * forecast.wave_rows / tasks, 0.0)
        whole = 0.0 if splittable else float(missed.max()) * forecast.wave_rows / tasks
        # After the first stage no forecast was checked yet: keys as seen are as likely as keys missed as then.
        cases = [loads, expected] if last_input and not forecast.report.stage else [loads]
        factors = BUDGETS_AT_THE_END if last_input else BUDGETS_IN_ORDER
        costs = {factor: _cost_as_seen(fair * factor, cases, whole) + drain for factor in factors}
        unlimited = fmean(float(case.max()) for case in cases)
    else:
        whole = 0.0 if splittable or not last_input else float(forecast.head_rows.max(initial=0.0))
        costs = {factor: _cost(fair * factor, expected, error, whole) + drain for factor in BUDGETS}
        unlimited = expected_largest(expected, error) if last_input else 0.0
    best = min(costs, key=lambda factor: (costs[factor], factor))
    if last_input and unlimited <= costs[best]:
        return Budget(None, "the budget is lifted, as a stage to drain what it would leave over costs more")
    return Budget(max(1, math.ceil(fair * best)), "")


#: What a task leaves over, in standard deviations of its error, by how far its forecast is above the budget: enough
#: points for a line from one to the next to be off by less than a millionth.
_ABOVE = np.linspace(-8.0, 8.0, 8193)
_NORMAL = (1.0 + np.vectorize(math.erf, otypes=[np.float64])(_ABOVE / math.sqrt(2.0))) / 2.0
_LEFT_OVER = _ABOVE * _NORMAL + np.exp(-(_ABOVE**2) / 2.0) / math.sqrt(2.0 * math.pi)


def _cost(budget: float, expected: Rows, error: Rows, whole: float) -> float:
    """Rows of the stage's largest task, and those left over spread over all tasks at their price.

    Where keys are whole, what is left of the heaviest is spread over none: the stage that drains takes as long.
    """
    over = (expected - budget) / error
    # E[max(0, X - b)] of a normal X.
    mean = float((error * np.maximum(np.interp(over, _ABOVE, _LEFT_OVER), over)).mean())
    return budget + max(mean, min(whole, float(expected.max()) - budget)) + BACKLOG_COST_ROWS * mean


def expected_largest(expected: Rows, error: Rows) -> float:
    """The mean of the largest of independent normal loads: what its distribution leaves below the highest it can be."""
    low, high = float(expected.max() - 8.0 * error.max()), float((expected + 8.0 * error).max())
    near = expected + 8.0 * error > low
    levels = low + (high - low) * (np.arange(64) + 0.5) / 64
    below = [np.interp((level - expected[near]) / error[near], _ABOVE, _NORMAL).prod() for level in levels]
    return high - (high - low) * float(np.mean(below))


def _cost_as_seen(budget: float, cases: Sequence[Rows], whole: float) -> float:
    """The mean over some cases of loads, where waves come in order; no later stage is shorter than a key."""
    left = [np.maximum(loads - budget, 0.0) for loads in cases]
    largest = fmean(max(float(one.mean()), min(whole, float(one.max()))) for one in left)
    return budget + largest + BACKLOG_IN_ORDER_ROWS * fmean(float(one.mean()) for one in left)


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
    seen before it, the smaller that is. Last, a stage that drains. By default the spread is what the report says.
    """
    first, last = plan.waves[1], len(job.waves)
    seen = report.histogram.seen_rows
    if last - first <= 1 or not seen or not overhead_rows:
        return Admission((first, min(first + 1, last)), "")
    tasks, spread = plan.task_count, spread or dispersion(plan, report, job.in_order)
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
    """What the error of a forecast from ``known`` rows costs a stage, in rows of the largest task."""
    return WASTE_PER_ERROR * math.sqrt(spread * rows / tasks * (1.0 + rows / known))


def _stages(stop: list[int], start: int, left: int) -> int:
    count = 1
    while start < left:
        start, count = stop[start], count + 1
    return count
