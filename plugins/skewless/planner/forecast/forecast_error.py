"""How wrong the last forecast was, and so how wrong the next one may be.

The error of a forecast is that of a sample: of N rows predicted from S rows seen, a task that gets n of them is off by
``sqrt(f n (1 + N/S))`` rows (the sum of two Poisson variances), where f >= 1 says how much more the waves differ than
rows drawn one by one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from skewless.documents.stage_report import StageReport
from skewless.planner.placement.placement import Rows
from skewless.routing.plan import RoutingPlan

#: The dispersion of a forecast that is the first of its run: twice the error of a sample.
UNCHECKED = 4.0
#: The same where waves come in order: nothing says yet that the keys of one are those of the next.
UNCHECKED_IN_ORDER = 400.0


def dispersion(plan: RoutingPlan, report: StageReport, in_order: bool = False) -> float:
    """How much more a stage's queues differed from their forecast than a sample would, at least 1.

    The f of the formula above: source partitions are no random samples, and keys drift. Where no
    forecast has been held to what came, the next one is taken to be ``UNCHECKED``.
    """
    before = report.histogram.seen_rows - report.admitted_rows
    if not plan.expected_rows or not report.admitted_rows or before <= 0:
        return UNCHECKED_IN_ORDER if in_order else UNCHECKED
    queued = np.array([load.queued_rows for load in report.tasks], dtype=np.float64)
    expected = np.array(plan.expected_rows, dtype=np.float64)
    fresh = report.admitted_rows / max(1, report.admitted_rows + report.backlog_in_rows)
    variance = np.maximum(1.0, expected * fresh * (1.0 + report.admitted_rows / before))
    return max(1.0, float(np.mean((queued - expected) ** 2 / variance)))


def misses(plan: RoutingPlan, report: StageReport, first: StageReport) -> Rows:
    """By how much queues differed from their forecast, as multiples of a fair share of the rows admitted.

    Of the last stage, and of the first one, for which an even spread was predicted: keys that nobody has seen yet
    will spread as keys did then.

    Args:
        plan: of the last stage.
        report: of the last stage.
        first: of the first one, which may be the same.

    Returns:
        One-dimensional, adding up to about 0; nothing where nothing was admitted.
    """
    return np.concatenate([_missed(report, plan.expected_rows), _missed(first, ())])


def _missed(report: StageReport, expected: Sequence[int]) -> Rows:
    queued = np.array([load.queued_rows for load in report.tasks], dtype=np.float64)
    if not report.admitted_rows:
        return np.zeros(0)
    told = np.array(expected, dtype=np.float64) if expected else queued.mean()
    missed: Rows = (queued - told) * len(queued) / report.admitted_rows
    return missed
