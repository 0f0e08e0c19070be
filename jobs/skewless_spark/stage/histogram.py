"""The report of a routed stage, measured from the files that it wrote: loads of its tasks and the exact key histogram.

Only a few columns of counts are read back, neither input nor backlog. Only the head and the slots of the ring reach
the driver.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from skewless.documents.commit import CommittedFile
from skewless.documents.stage_report import LONGEST_HEAD_KEY, Histogram, StageReport, TaskLoad
from skewless.routing.plan import RoutingPlan
from skewless.run.directory import RunDirectory, stage_step
from skewless_spark.stage.reduction import COUNTS
from skewless_spark.stage.routing import TASK, slot
from skewless_spark.stage.task_loads import task_counts, task_loads
from skewless_spark.states.columns import JobColumns
from skewless_spark.states.committed_files import PYTHON, counting, read_files


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
    counts = task_counts(run, plan, files)
    totals = {name: sum(int(of_task[name]) for of_task in counts.values()) for name in COUNTS}
    tasks = task_loads(plan, counts)
    histogram = key_histogram(spark, run, columns, plan, files, tasks, totals["admitted"])
    return StageReport(
        stage=plan.epoch,
        waves=plan.waves,
        admitted_rows=totals["admitted"],
        backlog_in_rows=totals["rows"] + totals["left_over"] - totals["admitted"],
        forwarded_rows=totals["forwarded"],
        processed_rows=totals["rows"],
        backlog_rows=totals["left_over"],
        stage_seconds=round(seconds(), 3),
        tasks=tasks,
        histogram=histogram,
    )


def key_histogram(
    spark: SparkSession,
    run: RunDirectory,
    columns: JobColumns,
    plan: RoutingPlan,
    files: Sequence[CommittedFile],
    tasks: Sequence[TaskLoad],
    admitted: int,
) -> Histogram:
    """Exact counts per key: rows seen in all stages so far, and rows left over.

    Args:
        spark: the session.
        run: the run directory; earlier stages have committed.
        columns: the job's columns.
        plan: the stage's plan.
        files: what the stage wrote.
        tasks: the loads of its tasks; empty if nothing was routed.
        admitted: the rows that the stage admitted, which are among those seen.
    """
    slots = 1 << plan.ring.ring_bits
    stages = [(run.committed(stage_step(stage)).files, run.report(stage).tasks) for stage in range(plan.epoch)]
    stages.append((tuple(files), tuple(tasks)))
    worked = [load for load in tasks if load.processed_rows]
    timed = bool(worked) and all(load.busy_seconds is not None for load in worked)
    parts = [
        part
        for number, (written, loads) in enumerate(stages)
        for part in _counted(spark, run, columns, written, loads if timed else (), is_last=number == plan.epoch)
    ]
    if not parts:
        nothing = (0,) * slots
        return Histogram(
            seen_rows=0, seen_null_rows=0, backlog_null_rows=0, head={}, seen_tail=nothing, backlog_tail=nothing
        )
    counts = parts[0]
    for part in parts[1:]:
        counts = counts.unionByName(part, allowMissingColumns=True)
    sums = [F.sum(name).alias(name) for name in ("seen", "left", *(("seconds",) if timed else ()))]
    per_key = counts.groupBy(columns.routing_key.alias("key")).agg(*sums)
    spent = math.fsum(load.busy_seconds or 0.0 for _, loads in stages for load in loads) if timed else None
    seen_rows = sum(run.report(stage).admitted_rows for stage in range(plan.epoch)) + admitted
    left_rows = sum(load.backlog_rows for load in tasks)
    return _summed(per_key, columns, plan, (max(1, seen_rows), max(1, left_rows)), spent)


def _counted(
    spark: SparkSession,
    run: RunDirectory,
    columns: JobColumns,
    files: Sequence[CommittedFile],
    tasks: Sequence[TaskLoad],
    *,
    is_last: bool,
) -> list[DataFrame]:
    """The counts of one stage by key: ``seen``, ``left`` and, if its tasks are given, ``seconds``, in some frames.

    Rows that earlier stages left over have been queued again, so ``left`` counts for the last stage only.
    """
    counted = counting(files)
    if not counted:
        return []
    left = F.col("left_over") if is_last else F.lit(0).cast("bigint")
    counts = [F.col("admitted").alias("seen"), left.alias("left")]
    states = read_files(spark, run, counted)
    python = [file for file in files if file.kind == PYTHON]
    if not tasks or not python:
        return [states.select(*columns.keys, *counts)]
    seconds = _key_seconds(tasks).alias("seconds")
    if counted == python:
        return [states.select(*columns.keys, *counts, seconds)]
    return [
        states.select(*columns.keys, *counts),
        read_files(spark, run, python).where(F.col("key_seconds").isNotNull()).select(*columns.keys, seconds),
    ]


def _key_seconds(tasks: Sequence[TaskLoad]) -> Column:
    """Seconds of a key that was timed apart, converted to what the median task would have taken."""
    slowness = [load.slowness if load.slowness is not None else 1.0 for load in tasks]
    if all(one == 1.0 for one in slowness):
        return F.col("key_seconds")
    # One text, since each literal would be a call to the JVM.
    listed = ", ".join(f"{one!r}D" for one in slowness)
    return F.col("key_seconds") / F.expr(f"element_at(array({listed}), {TASK} + 1)")


def _summed(
    per_key: DataFrame, columns: JobColumns, plan: RoutingPlan, rows: tuple[int, int], spent: float | None
) -> Histogram:
    """The histogram from the counts of each key.

    Args:
        per_key: ``key``, ``seen``, ``left``, and ``seconds`` where keys were timed.
        columns: the job's columns.
        plan: the stage's plan.
        rows: rows seen so far, and rows left over now, of all keys together.
        spent: seconds of all keys together; None if they were not timed.
    """
    slots = 1 << plan.ring.ring_bits
    seen, left = np.zeros(slots, dtype=np.int64), np.zeros(slots, dtype=np.int64)
    # As columns: a ring may have a million slots, and a Python object for each would take seconds.
    found = head_and_slots(per_key, plan.ring.ring_bits, columns.job.spec.routing.head_limit, rows).toArrow()
    heaviest = found.filter(pc.is_valid(found["share"])).to_pylist()
    others = found.filter(pc.is_null(found["share"]))
    nulls = others.filter(pc.is_null(others["slot"])).to_pylist()
    null_seen, null_left = sum(row["seen"] for row in nulls), sum(row["left"] for row in nulls)
    by_slot = others.filter(pc.is_valid(others["slot"]))
    at_slot = by_slot["slot"].to_numpy()
    seen[at_slot], left[at_slot] = by_slot["seen"].to_numpy(), by_slot["left"].to_numpy()
    keys = int(by_slot["keys"].to_numpy().sum())
    seen_rows = int(seen.sum()) + null_seen
    for row in heaviest:
        at = plan.ring.slot_of(row["key"])
        seen[at] -= row["seen"]
        left[at] -= row["left"]
    seconds = {row["key"]: round(row["seconds"], 6) for row in heaviest if spent and row["seconds"]}
    return Histogram(
        seen_rows=seen_rows,
        seen_null_rows=null_seen,
        backlog_null_rows=null_left,
        head={row["key"]: (int(row["seen"]), int(row["left"])) for row in heaviest},
        seen_tail=tuple(seen.tolist()),
        backlog_tail=tuple(left.tolist()),
        head_seconds=seconds,
        tail_seconds=max(0.0, spent - math.fsum(seconds.values())) if spent is not None else None,
        keys=keys,
    )


def head_and_slots(per_key: DataFrame, ring_bits: int, head_limit: int, rows: tuple[int, int]) -> DataFrame:
    """The heaviest keys one by one and all keys by slot of the ring, in one reading of the counts.

    Args:
        per_key: ``key``, ``seen``, ``left``, and others that are summed too.
        ring_bits: of the ring, which has two to the power of that many slots.
        head_limit: the maximum number of named keys.
        rows: rows seen so far, and rows left over now, of all keys together.

    Returns:
        The columns of ``per_key``, ``share``, ``slot`` and ``keys``. A row with a share is a key of the head. A row
        without a share is a slot with that many keys, or, without a slot too, the null key.
    """
    slotted = _by_slot(per_key, ring_bits)
    return slotted.unionByName(_head(per_key, head_limit, rows), allowMissingColumns=True)


def _by_slot(per_key: DataFrame, ring_bits: int) -> DataFrame:
    """Rows per slot of the ring. A null key hashes like any other value, but has no slot."""
    on_ring = F.when(F.col("key").isNotNull(), F.expr(slot("key", ring_bits)))
    # The same columns as the head, so that both are computed from one reading of the counts.
    counted = [name for name in per_key.columns if name != "key"]
    sums = [F.sum(name).alias(name) for name in counted]
    slots = per_key.groupBy(on_ring.alias("slot")).agg(*sums, F.count("key").alias("keys"))
    return slots.withColumn("key", F.lit(None).cast("string"))


def _head(per_key: DataFrame, head_limit: int, rows: tuple[int, int]) -> DataFrame:
    """The keys with the largest share of what was seen or of what is left over, the heaviest first.

    A backlog has heavy keys of its own, since it is not a sample of the rows seen. A key that is not UTF-8 cannot be
    written into a plan and stays on the ring, and so does null.
    """
    seen_rows, left_rows = rows
    share = F.greatest(F.col("seen") / seen_rows, F.col("left") / left_rows)
    # Filtered last: Spark would push an earlier filter down to the counts, and read them twice.
    named = F.is_valid_utf8("key") & (F.length("key") <= LONGEST_HEAD_KEY)
    heaviest = per_key.withColumn("share", F.when(named, share)).orderBy(F.desc_nulls_last("share"), "key")
    return heaviest.limit(head_limit).where(F.col("share").isNotNull())
