"""Gives recent stages more weight in the forecast, if waves come in the order of the input.

Waves that are samples of the whole input are alike, and all rows seen have the same weight. In waves that come in
order, keys begin and end. How fast they do is measured: which weights of the earlier stages would have predicted the
last one best? Two numbers are fitted by least squares over the named keys, the slots of the ring and the rows without
a key: the weight of a stage relative to the one after it, and the part of the forecast to believe. The rest of the
rows is spread evenly over the ring, as rows of unseen keys.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from skewless.documents.job import Job
from skewless.documents.stage_report import Histogram, StageReport
from skewless.planner.forecast.wave_counts import rows_by_stage
from skewless.planner.placement.placement import Rows

#: Weights of a stage relative to the one after it: from all alike (1) down to the last one alone (0).
WEIGHTS = (1.0, 0.5, 0.25, 0.0)


def weighted(job: Job, reports: Sequence[StageReport]) -> Histogram | None:
    """The last histogram with its seen rows weighted by age.

    Args:
        job: the frozen job.
        reports: of the stages so far, in order; the last one's counts are weighted.

    Returns:
        None if all rows have the same weight: waves are samples, or no forecast can be checked yet.
    """
    last = reports[-1].histogram
    if not job.in_order or len(reports) < 2 or not last.head or not reports[-1].admitted_rows:
        return None
    if len({len(report.histogram.seen_tail) for report in reports}) > 1:
        return None
    keys = list(last.head)
    stages = rows_by_stage(keys, reports)
    even = np.zeros(stages.shape[1])
    even[len(keys) : -1] = 1.0 / len(last.seen_tail)
    fits = [(*_fitted(_aged(stages[:-1], weight), stages[-1], even), -weight) for weight in WEIGHTS]
    _, believed, weight = min(fits)
    rows = _aged(stages, -weight)
    rows = believed * rows + (1.0 - believed) * float(rows.sum()) * even
    # Round along the ring, not slot by slot: a quarter of a row in each slot must not become none in all of them.
    rows[len(keys) : -1] = np.diff(np.rint(np.cumsum(rows[len(keys) : -1])), prepend=0.0)
    whole = np.rint(rows).astype(np.int64).tolist()
    return last.model_copy(
        update={
            "seen_rows": sum(whole),
            "seen_null_rows": whole[-1],
            "head": {key: (whole[at], last.head[key][1]) for at, key in enumerate(keys)},
            "seen_tail": tuple(whole[len(keys) : -1]),
        }
    )


def _aged(stages: Rows, weight: float) -> Rows:
    """The weighted sum of the stages; each has ``weight`` times the weight of the one after it."""
    weights = weight ** np.arange(len(stages) - 1, -1, -1.0)
    rows: Rows = weights @ stages
    return rows


def _fitted(before: Rows, after: Rows, even: Rows) -> tuple[float, float]:
    """The least sum of squared errors, and the part of ``before`` to believe, from 0 to 1, that gives it."""
    predicted, came = before / max(1.0, float(before.sum())) - even, after / max(1.0, float(after.sum())) - even
    size = float(predicted @ predicted)
    believed = min(1.0, max(0.0, float(predicted @ came) / size)) if size else 0.0
    return float(((came - believed * predicted) ** 2).sum()), believed
