"""Spark's own counts of each input split: rows read, states sent on, seconds. They cost no job.

Spark reads and aggregates rows in one generated loop. Counting rows by split there would be slow: an observation takes
them out of the loop, and a ``groupBy`` with a sum takes 50 % longer. But every Spark task reports how many rows it read
and how many records it sent on, which are its partial states. These counts are used only if their rows add up to the
rows of the states.
"""

from __future__ import annotations

import logging

from skewless.documents.stage_report import SplitLoad
from skewless_spark.session.spark_jobs import SILENT, JobsSeen, Told

log = logging.getLogger(__name__)


def splits_seen(seen: JobsSeen, rows: int) -> tuple[SplitLoad, ...]:
    """The load of each input split by its number; empty if it is not known, or if the rows do not add up.

    Args:
        seen: the jobs that reduced the splits, among others.
        rows: the rows that they reduced.
    """
    try:
        return _loads(seen, rows) if rows else ()
    except SILENT as err:
        log.info("input splits are not measured: %s", err)
        return ()


def _loads(seen: JobsSeen, rows: int) -> tuple[SplitLoad, ...]:
    stages = seen.stages(seen.jobs())
    reading = [one for one in stages if one["inputRecords"] == rows and not one["shuffleReadRecords"]]
    if len(reading) != 1:
        log.info("input splits are not measured: %d stages of Spark read just these rows", len(reading))
        return ()
    (stage,) = reading
    done = {one["index"]: one["taskMetrics"] for one in seen.tasks(stage) if one["status"] == "SUCCESS"}
    found = tuple(_load(done[index], bool(stage["shuffleWriteRecords"])) for index in sorted(done))
    return found if len(found) == stage["numTasks"] and sum(one.rows for one in found) == rows else ()


def _load(metrics: Told, sent_on: bool) -> SplitLoad:
    """The load of a split. Without an exchange, nothing counts its states."""
    states = int(metrics["shuffleWriteMetrics"]["recordsWritten"]) if sent_on else None
    return SplitLoad(
        rows=int(metrics["inputMetrics"]["recordsRead"]),
        states=states,
        busy_seconds=round(metrics["executorRunTime"] / 1000.0, 3),
    )
