"""How many rows each task may reduce in the next stage.

A budget ends the stage for the tasks that have more rows than predicted. A newer and better forecast places what they
leave over. The price: those rows are written, read and shuffled once more, and at the end of the input they need one
more stage.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from skewless.planner.forecast.forecast import Forecast
from skewless.planner.placement.placement import Rows

#: Budget of the policies that do not choose their own, as a multiple of the fair share.
USUAL_BUDGET = 1.02
#: What a row left over costs, in rows reduced: it is written, read and shuffled once more, and
#: if the next plan moves it, forwarded.
BACKLOG_COST_ROWS = 0.4
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

    A task that has more rows than the budget leaves some over, at a price; one that has fewer is
    idle for the rest of the stage. Without a budget the stage waits for the task whose forecast is
    worst, but needs no other stage to drain.

    Args:
        forecast: what the stage will find.
        expected: rows predicted for each task, shape ``(tasks,)``.
        spread: see ``dispersion``.
        last_input: whether no input is left after this stage.
        overhead_rows: what a stage costs, in rows of the largest task.
        missed: see ``misses``; given where waves come in order, and taken to be how the next forecast will be
            missed too.
        splittable: whether keys are split.
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
        factors = BUDGETS_AT_THE_END if last_input else BUDGETS_IN_ORDER
        costs = {factor: _cost_as_seen(fair * factor, loads, whole) + drain for factor in factors}
        unlimited = float(loads.max())
    else:
        whole = 0.0 if splittable or not last_input else float(forecast.head_rows.max(initial=0.0))
        costs = {factor: _cost(fair * factor, expected, error, whole) + drain for factor in BUDGETS}
        unlimited = float((expected + error * math.sqrt(2.0 * math.log(tasks))).max())
    best = min(costs, key=lambda factor: (costs[factor], factor))
    if last_input and unlimited <= costs[best]:
        return Budget(None, "the budget is lifted, as a stage to drain what it would leave over costs more")
    return Budget(max(1, math.ceil(fair * best)), "")


def _cost(budget: float, expected: Rows, error: Rows, whole: float) -> float:
    """Rows of the stage's largest task, and those left over spread over all tasks at their price.

    Where keys are whole, what is left of the heaviest is spread over none: the stage that drains takes as long.
    """
    over = (expected - budget) / error
    # E[max(0, X - b)] of a normal X.
    density = np.exp(-(over**2) / 2.0) / math.sqrt(2.0 * math.pi)
    left = error * (over * _normal_cdf(over) + density)
    mean = float(np.maximum(left, 0.0).mean())
    return budget + max(mean, min(whole, float(expected.max()) - budget)) + BACKLOG_COST_ROWS * mean


def _cost_as_seen(budget: float, loads: Rows, whole: float) -> float:
    """The same where loads will miss their forecast as they did last time.

    Args:
        budget: in rows.
        loads: of the tasks.
        whole: rows of a key that came unforeseen and may not be split: no later stage is shorter.
    """
    left = np.maximum(loads - budget, 0.0)
    largest = max(float(left.mean()), min(whole, float(left.max())))
    return budget + largest + BACKLOG_COST_ROWS * float(left.mean())


def _normal_cdf(values: Rows) -> Rows:
    """The standard normal distribution to within 1e-7 (Abramowitz and Stegun 1964, 26.2.17)."""
    size = np.abs(values)
    t = 1.0 / (1.0 + 0.2316419 * size)
    series = t * (0.319381530 + t * (-0.356563782 + t * (1.781477937 + t * (-1.821255978 + t * 1.330274429))))
    upper = np.exp(-(size**2) / 2.0) / math.sqrt(2.0 * math.pi) * series
    found: Rows = np.where(values >= 0, 1.0 - upper, upper)
    return found
