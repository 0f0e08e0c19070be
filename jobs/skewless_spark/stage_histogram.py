"""Measuring a stage from the files it wrote: loads per task, and the exact key histogram.

Only counts are read back, a few columns of the states; neither the input nor the backlog
is read again, and no more than the head and the slots of the ring reach the driver.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from skewless.errors import LedgerError
from skewless.routing_plan import RoutingPlan
from skewless.run_directory import RunDirectory, stage_step
from skewless.stage_report import Histogram, StageReport, TaskLoad
from skewless.step_commit import CommittedFile
from skewless_spark.columns import JobColumns
from skewless_spark.committed_files import NATIVE, PYTHON, read_files
from skewless_spark.routing import TASK, slot

#: A longer key text is left to the ring: plans and reports are documents that people read.
LONGEST_HEAD_KEY = 1024


def measure(
    spark: SparkSession,
    run: RunDirectory,
    columns: JobColumns,
    plan: RoutingPlan,
    files: Sequence[CommittedFile],
    seconds: Callable[[], float],
) -> StageReport:
    """The report of a stage whose files are written but not committed.

    Args:
        spark: the session.
        run: the run directory; earlier stages have committed.
        columns: the job's columns.
        plan: the stage's plan.
        files: what the stage wrote.
        seconds: wall time of the stage so far, asked for last.
    """
    loads = _loads(spark, run, columns, plan, files)
    totals = {
        name: sum(int(row[name]) for row in loads.values()) for name in ("rows", "left_over", "admitted", "forwarded")
    }
    histogram = _histogram(spark, run, columns, plan, files)
    return StageReport(
        stage=plan.epoch,
        waves=plan.waves,
        admitted_rows=totals["admitted"],
        backlog_in_rows=totals["rows"] + totals["left_over"] - totals["admitted"],
        forwarded_rows=totals["forwarded"],
        processed_rows=totals["rows"],
        backlog_rows=totals["left_over"],
        stage_seconds=round(seconds(), 3),
        tasks=tuple(_task_load(str(task), loads.get(number)) for number, task in enumerate(plan.tasks)),
        histogram=histogram,
    )


def _task_load(name: str, row: Row | None) -> TaskLoad:
    if row is None:
        return TaskLoad(task=name, queued_rows=0, processed_rows=0, backlog_rows=0, states=0)
    processed, left_over = int(row["rows"]), int(row["left_over"])
    return TaskLoad(
        task=name, queued_rows=processed + left_over, processed_rows=processed,
        backlog_rows=left_over, states=int(row["states"]),
    )  # fmt: skip


def _loads(
    spark: SparkSession,
    run: RunDirectory,
    columns: JobColumns,
    plan: RoutingPlan,
    files: Sequence[CommittedFile],
) -> dict[int, Row]:
    """Counts by task index; the Python states must have seen as many rows as the native ones."""
    native = [file for file in files if file.kind == NATIVE]
    python = [file for file in files if file.kind == PYTHON]
    if not native:
        return {}
    counts = read_files(spark, run, native).select([TASK, "rows", "left_over", "admitted", "forwarded"])
    if python:
        seen = read_files(spark, run, python).select([TASK, "python_rows"])
        counts = counts.unionByName(seen, allowMissingColumns=True)
    else:
        counts = counts.withColumn("python_rows", F.lit(None).cast("bigint"))
    summed = counts.groupBy(TASK).agg(
        *(F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in ("rows", "left_over", "admitted", "forwarded")),
        F.count(F.when(F.col("rows") > 0, 1)).alias("states"),
        F.coalesce(F.sum("python_rows"), F.lit(0)).alias("python_rows"),
    )
    loads = {int(row[TASK]): row for row in summed.collect()}
    odd = next((row for row in loads.values() if columns.python and row["rows"] != row["python_rows"]), None)
    if odd:
        raise LedgerError(
            f"stage {plan.epoch}, task {plan.tasks[odd[TASK]]}", f"{odd['rows']:,} rows in its Python states",
            f"{odd['python_rows']:,}", "nothing was committed",
        )  # fmt: skip
    return loads


def _histogram(
    spark: SparkSession,
    run: RunDirectory,
    columns: JobColumns,
    plan: RoutingPlan,
    files: Sequence[CommittedFile],
) -> Histogram:
    """Exact counts per key: rows seen in all stages so far, and rows this stage left over."""
    earlier = [
        file
        for stage in range(plan.epoch)
        for file in run.committed(stage_step(stage)).of_kind(NATIVE)
    ]  # fmt: skip
    now = [file for file in files if file.kind == NATIVE]
    slots = 1 << plan.ring.ring_bits
    if not earlier and not now:
        nothing = (0,) * slots
        return Histogram(
            seen_rows=0, seen_null_rows=0, backlog_null_rows=0, head={}, seen_tail=nothing, backlog_tail=nothing
        )
    parts = [
        read_files(spark, run, part).select([*columns.keys, "admitted", "left_over"]) for part in (earlier, now) if part
    ]
    if earlier:
        # What earlier stages left over has been queued again since.
        parts[0] = parts[0].withColumn("left_over", F.lit(0).cast("bigint"))
    counts = parts[0] if len(parts) == 1 else parts[0].unionByName(parts[1])
    per_key = (
        counts.groupBy(columns.key.alias("key"))
        .agg(F.sum("admitted").alias("seen"), F.sum("left_over").alias("left"))
        .persist()
    )
    try:
        return _summed(per_key, columns, plan, slots)
    finally:
        per_key.unpersist()


def _summed(per_key: DataFrame, columns: JobColumns, plan: RoutingPlan, slots: int) -> Histogram:
    # A null key hashes like any other value, but has no slot.
    on_ring = F.when(F.col("key").isNotNull(), slot(F.col("key"), plan.ring.ring_bits))
    by_slot = per_key.groupBy(on_ring.alias("slot"))
    rows = by_slot.agg(F.sum("seen").alias("seen"), F.sum("left").alias("left")).collect()
    seen, left = np.zeros(slots, dtype=np.int64), np.zeros(slots, dtype=np.int64)
    null_seen = null_left = 0
    for row in rows:
        if row["slot"] is None:
            null_seen, null_left = int(row["seen"]), int(row["left"])
        else:
            seen[row["slot"]], left[row["slot"]] = row["seen"], row["left"]
    seen_rows = int(seen.sum()) + null_seen
    head = _head(per_key, columns, max(1, seen_rows), max(1, int(left.sum())))
    for key, (key_seen, key_left) in head.items():
        at = plan.ring.slot_of(key)
        seen[at] -= key_seen
        left[at] -= key_left
    return Histogram(
        seen_rows=seen_rows,
        seen_null_rows=null_seen,
        backlog_null_rows=null_left,
        head=head,
        seen_tail=tuple(seen.tolist()),
        backlog_tail=tuple(left.tolist()),
    )


def _head(per_key: DataFrame, columns: JobColumns, seen_rows: int, left_rows: int) -> dict[str, tuple[int, int]]:
    """The keys with the largest share of what was seen or of what is left over.

    A backlog is no sample of what came: its heavy keys are its own. A key that is no UTF-8 cannot be
    written into a plan, and stays on the ring; so does null, which is no key.
    """
    share = F.greatest(F.col("seen") / seen_rows, F.col("left") / left_rows)
    named = per_key.where(F.is_valid_utf8("key") & (F.length("key") <= LONGEST_HEAD_KEY))
    heaviest = named.orderBy(share.desc(), "key").limit(columns.job.spec.routing.head_limit)
    return {row["key"]: (int(row["seen"]), int(row["left"])) for row in heaviest.collect()}
