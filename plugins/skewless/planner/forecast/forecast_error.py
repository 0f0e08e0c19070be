"""How wrong the last forecast was, and so how wrong the next one may be; and how far the keys of two runs differ.

The error of a forecast is that of a sample: of N rows predicted from S rows seen, a task that gets n of them is off by
``sqrt(f n (1 + N/S))`` rows (the sum of two Poisson variances), where f >= 1 says how much more the waves differ than
rows drawn one by one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from skewless.columns import numbers
from skewless.documents.stage_report import Histogram, StageReport
from skewless.planner.placement.placement import Rows
from skewless.routing.hashing import key_slots
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
    queued = numbers(report.tasks, "queued_rows").astype(np.float64)
    expected = np.array(plan.expected_rows, dtype=np.float64)
    fresh = report.admitted_rows / max(1, report.admitted_rows + report.backlog_in_rows)
    variance = np.maximum(1.0, expected * fresh * (1.0 + report.admitted_rows / before))
    return max(1.0, float(np.mean((queued - expected) ** 2 / variance)))


def misses(plan: RoutingPlan, report: StageReport, first: StageReport) -> Rows:
    """By how much queues differed from their forecast, as multiples of a fair share of the rows admitted.

    Of the last stage, and of the first one, for which an even spread was predicted: keys that nobody has seen yet
    will spread as keys did then. They add up to about 0; nothing where nothing was admitted.
    """
    return np.concatenate([_missed(report, plan.expected_rows), _missed(first, ())])


def _missed(report: StageReport, expected: Sequence[int]) -> Rows:
    queued = numbers(report.tasks, "queued_rows").astype(np.float64)
    if not report.admitted_rows:
        return np.zeros(0)
    told = np.array(expected, dtype=np.float64) if expected else queued.mean()
    missed: Rows = (queued - told) * len(queued) / report.admitted_rows
    return missed


# How far the keys of two runs, or of a run and its forecast, differ: the total variation distance of their shares,
# sum |p - q| / 2, the part of the rows that would have to be of another key. Both are samples, and even of the same
# source they differ: with n and m rows a share r has a difference of standard deviation sqrt(r (1 - r) (1/n + 1/m)),
# whose absolute value is sqrt(2 / pi) of that in the mean (half-normal distribution). Half the sum of these means is
# taken off: what is left is, in the mean, at most the true distance, and 0 where nothing but chance differs.


def drift(first: Histogram, second: Histogram) -> float:
    """The distance, from 0 to 1, of the keys that were seen, sampling noise taken off; 0 if one of them is empty.

    Keys that both name are compared one by one, all others added up per slot of the ring, and rows
    without a key for themselves. Adding up can only bring shares nearer (data processing inequality):
    the keys differ by at least so much. Of rings of different sizes the smaller one's slots are taken.
    """
    common = sorted(set(first.head) & set(second.head))
    slots = min(len(first.seen_tail), len(second.seen_tail))
    return distance(_cells(first, common, slots), _cells(second, common, slots))


def distance(first: Rows, second: Rows) -> float:
    """The total variation distance of two samples over the same cells, sampling noise taken off; 0 if one is empty."""
    rows, others = float(first.sum()), float(second.sum())
    if not rows or not others:
        return 0.0
    apart = float(np.abs(first / rows - second / others).sum()) / 2.0
    pooled = (first + second) / (rows + others)
    deviations = np.sqrt(pooled * (1.0 - pooled) * (1.0 / rows + 1.0 / others))
    return max(0.0, apart - math.sqrt(2.0 / math.pi) * float(deviations.sum()) / 2.0)


def drifted_sentence(plan: RoutingPlan, report: StageReport) -> str:
    """After stage 0, how far the keys differ from what the first plan says that it was made from, in words.

    The first plan keeps what it expected of each task, not of each key; so the tasks' queues are compared, and
    the keys differ by at least as much. Nothing is said where it was not made from a forecast, or after another stage.
    """
    if plan.epoch or not plan.expected_rows or not report.admitted_rows:
        return ""
    source = "its forecast" if plan.source is None else plan.source.words
    queued = numbers(report.tasks, "queued_rows").astype(np.float64)
    apart = distance(np.array(plan.expected_rows, dtype=np.float64), queued)
    if apart < 0.005:
        return f"the keys are spread as in {source}, from which the first plan was made"
    return f"the keys differ by at least {apart:.0%} from {source}, from which the first plan was made"


def _cells(histogram: Histogram, common: list[str], slots: int) -> Rows:
    """Rows of the common keys, of the slots with all other keys, and of rows without a key."""
    tail = np.array(histogram.seen_tail, dtype=np.float64).reshape(slots, -1).sum(axis=1)
    shared = set(common)
    others = [key for key in histogram.head if key not in shared]
    rows = np.array([histogram.head[key][0] for key in others], dtype=np.float64)
    tail += np.bincount(key_slots(others, slots), weights=rows, minlength=slots)
    named = [histogram.head[key][0] for key in common]
    return np.concatenate([np.array(named, dtype=np.float64), tail, [float(histogram.seen_null_rows)]])
