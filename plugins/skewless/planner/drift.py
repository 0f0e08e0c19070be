"""How far the keys of two runs, or of a run and its forecast, differ.

The total variation distance of their shares, ``sum |p - q| / 2``: the part of the rows that would have
to be of another key. Both are samples, and even of the same source they differ: with n and m rows a
share r has a difference of standard deviation ``sqrt(r (1 - r) (1/n + 1/m))``, whose absolute value is
``sqrt(2 / pi)`` of that in the mean (half-normal distribution). Half the sum of these means is taken
off: what is left is, in the mean, at most the true distance, and 0 where nothing but chance differs.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from skewless.documents.stage_report import Histogram, StageReport
from skewless.routing.hashing import key_hash
from skewless.routing.plan import RoutingPlan

Rows = npt.NDArray[np.float64]


def drift(first: Histogram, second: Histogram) -> float:
    """The distance of the keys that were seen, sampling noise taken off.

    Keys that both name are compared one by one, all others added up per slot of the ring, and rows
    without a key for themselves. Adding up can only bring shares nearer (data processing inequality):
    the keys differ by at least so much. Of rings of different sizes the smaller one's slots are taken.

    Args:
        first: of one run.
        second: of another.

    Returns:
        From 0, the same, to 1, no key in common; 0 if one of them is empty.
    """
    common = sorted(set(first.head) & set(second.head))
    slots = min(len(first.seen_tail), len(second.seen_tail))
    return distance(_cells(first, common, slots), _cells(second, common, slots))


def distance(first: Rows, second: Rows) -> float:
    """The total variation distance of two samples over the same cells, sampling noise taken off.

    Args:
        first: rows of each cell, shape ``(cells,)``.
        second: the same of the other sample.

    Returns:
        From 0 to 1; 0 if one of them is empty.
    """
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
    the keys differ by at least as much.

    Args:
        plan: of the reported stage.
        report: what happened.

    Returns:
        Nothing where the first plan was not made from a forecast, or after another stage.
    """
    if plan.epoch or not plan.expected_rows or not report.admitted_rows:
        return ""
    source = "its forecast" if plan.source is None else plan.source.words
    queued = np.array([load.queued_rows for load in report.tasks], dtype=np.float64)
    apart = distance(np.array(plan.expected_rows, dtype=np.float64), queued)
    if apart < 0.005:
        return f"the keys are spread as in {source}, from which the first plan was made"
    return f"the keys differ by at least {apart:.0%} from {source}, from which the first plan was made"


def _cells(histogram: Histogram, common: list[str], slots: int) -> Rows:
    """Rows of the common keys, of the slots with all other keys, and of rows without a key."""
    tail = np.array(histogram.seen_tail, dtype=np.float64).reshape(slots, -1).sum(axis=1)
    shared = set(common)
    others = [key for key in histogram.head if key not in shared]
    hashes = np.fromiter(map(key_hash, others), dtype=np.int64, count=len(others))
    rows = np.array([histogram.head[key][0] for key in others], dtype=np.float64)
    tail += np.bincount(hashes >> (32 - (slots.bit_length() - 1)), weights=rows, minlength=slots)
    named = [histogram.head[key][0] for key in common]
    return np.concatenate([np.array(named, dtype=np.float64), tail, [float(histogram.seen_null_rows)]])
