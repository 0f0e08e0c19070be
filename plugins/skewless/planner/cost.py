"""What a stage costs beside its rows, and what a row costs: fitted to the stages so far."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from skewless.bounds import makespan
from skewless.documents.job import Job
from skewless.documents.stage_report import Histogram, StageReport

#: Seconds of a stage that are assumed not to depend on its rows, until stages of different sizes were measured: a stage
#: of a handful of rows takes so long in a warm session, and at most about so long in a cold one on two cores.
USUAL_OVERHEAD_SECONDS, MOST_OVERHEAD_SECONDS = 1.5, 20.0
#: What one more task costs, in rows reduced: it is started, and writes files of its own.
TASK_COST_ROWS = 100.0
#: Seconds that one core takes to send a raw row through the exchange, and back from it in order. Only
#: the ratio of the three matters; measured with pyspark 4.3 over Parquet (benchmarks B1 and B3).
ROW_SECONDS = 6e-7
#: The same for a row of key and arguments alone, in no order. Measured in seconds of all processes, on two cores:
#:
#: - count and sum, 20 million rows, 37,000 keys: plain Spark 2.8 with partial aggregation, 9.3 without: 0.32 us;
#:   beside other work ``combine`` 3.5 and ``bypass`` 13.0: 0.47 us,
#: - HLL, 5 million rows, 37,000 keys: ``combine`` 2.4 and ``bypass`` 4.2: 0.36 us,
#: - HLL, 5 million rows, 843,000 keys: ``combine`` 11.2 and ``bypass`` 10.8.
SENT_ROW_SECONDS = 3.3e-7


class StageCost(NamedTuple):
    """A stage takes ``overhead_seconds + seconds_per_row * makespan_rows``."""

    overhead_seconds: float
    seconds_per_row: float

    @property
    def overhead_rows(self) -> float:
        """The overhead in rows of the largest task: a stage pays if it shortens that by more."""
        if not self.overhead_seconds:
            return 0.0
        return self.overhead_seconds / self.seconds_per_row if self.seconds_per_row > 0 else float("inf")


def stage_cost(job: Job, reports: Sequence[StageReport]) -> StageCost:
    """The cost of the next stage, from the spec or from what was measured in the stages that were routed, at least one.

    If the tasks' own times were measured, the rest of the stage's time is overhead, and nothing is fitted. Otherwise
    one stage cannot tell the two apart. A row costs at most what the last stage leaves for it beside the usual
    overhead. It costs at least what the stage leaves beside the overhead of a cold session, what any row costs in
    Spark, and what the line fitted through the stages says, which a cold first stage makes too flat. The mean of all
    costs between is taken, each order of magnitude being as likely: ``(most - least) / ln(most / least)``.
    """
    rows = np.array([makespan(report.processed.astype(np.float64), job.slots_at(report)) for report in reports])
    seconds = np.array([report.stage_seconds for report in reports])
    given = job.spec.routing.stage_overhead
    if given is not None:
        work = float(np.maximum(seconds - given, 0.0).sum())
        return StageCost(given, work / float(rows.sum()) if rows.any() else 0.0)
    last_rows, last_seconds = float(rows[-1]), float(seconds[-1])
    if not last_rows:
        return StageCost(0.0, 0.0)  # nothing was measured
    if (busy := reports[-1].busy_seconds) is not None:
        work = makespan(busy, job.slots_at(reports[-1]))
        return StageCost(max(0.0, last_seconds - work), work / last_rows)
    most, left = (max(0.0, last_seconds - one) / last_rows for one in (USUAL_OVERHEAD_SECONDS, MOST_OVERHEAD_SECONDS))
    varied = len(reports) > 1 and np.ptp(rows) > 0
    slope = float(np.cov(rows, seconds, bias=True)[0, 1] / rows.var()) if varied else 0.0
    least = max(ROW_SECONDS, left, slope)
    per_row = (most - least) / math.log(most / least) if most > least else max(most, slope)
    return StageCost(max(0.0, last_seconds - per_row * last_rows), per_row)


def overhead_rows_before(job: Job, last: Histogram | None = None) -> float:
    """What a stage costs before any was run, in rows of the largest task; all rows if no cost of a row is known."""
    given = job.spec.routing.stage_overhead
    overhead, row_seconds = USUAL_OVERHEAD_SECONDS if given is None else given, row_seconds_before(job, last)
    if row_seconds is None:
        return float(job.rows) if overhead else 0.0
    return overhead / row_seconds


def row_seconds_before(job: Job, last: Histogram | None = None) -> float | None:
    """What a row costs: as the last run measured it, or as the aggregates declare it; None where neither is known."""
    if last is not None and last.tail_seconds is not None and last.seen_rows:
        measured = math.fsum(last.head_seconds.values()) + last.tail_seconds
        return max(ROW_SECONDS, measured / last.seen_rows)
    declared = [one.row_seconds for one in job.algebra.values() if one.row_seconds is not None]
    return ROW_SECONDS + math.fsum(declared) if len(declared) == len(job.algebra) else None
