"""Measuring a stage from the files it wrote: loads per task, and the exact key histogram.

Only counts are read back, a few columns of the states; neither the input nor the backlog
is read again, and no more than the head and the slots of the ring reach the driver.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from skewless.errors import LedgerError
from skewless.routing_plan import RoutingPlan
from skewless.run_directory import RunDirectory, stage_step
from skewless.stage_report import LONGEST_HEAD_KEY, Histogram, StageReport, TaskLoad
from skewless.step_commit import CommittedFile
from skewless_spark.columns import JobColumns
from skewless_spark.committed_files import NATIVE, PYTHON, read_files
from skewless_spark.reduction import COUNTS
from skewless_spark.routing import TASK, slot

#: Rows of Python aggregates that take less than this, and tasks that take less than that, are as good as free,
#: and their time is not told: it says more of the machine's other work than of theirs, and no plan shall
#: depend on it.
SLOW_ROW_SECONDS = 3e-5
SLOW_TASK_SECONDS = 0.05
#: A task's light rows say how fast it is if there are so many of them.
LEAST_LIGHT_ROWS = 100


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
    loads = _loads(spark, run, plan, files)
    totals = {name: sum(int(row[name]) for row in loads.values()) for name in COUNTS}
    tasks = _task_loads(plan, loads)
    histogram = _histogram(spark, run, columns, plan, files, tasks, totals["admitted"])
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


def _task_loads(plan: RoutingPlan, loads: Mapping[int, Row]) -> tuple[TaskLoad, ...]:
    slowness = _slowness(len(plan.tasks), loads)
    return tuple(
        _task_load(str(task), loads.get(number), slowness.get(number)) for number, task in enumerate(plan.tasks)
    )


def _task_load(name: str, row: Row | None, slowness: float | None) -> TaskLoad:
    if row is None:
        return TaskLoad(task=name, queued_rows=0, processed_rows=0, backlog_rows=0, states=0)
    processed, left_over = int(row["rows"]), int(row["left_over"])
    return TaskLoad(
        task=name, queued_rows=processed + left_over, processed_rows=processed, backlog_rows=left_over,
        states=int(row["states"]), busy_seconds=_busy(row), slowness=slowness,
    )  # fmt: skip


def _busy(row: Row) -> float | None:
    """Seconds in the Python aggregates; too few to matter are none, for native ones may take longer."""
    if row["task_seconds"] is None:
        return None
    seconds = float(row["task_seconds"]) + float(row["setup_seconds"] or 0.0)
    slow = seconds >= max(SLOW_TASK_SECONDS, SLOW_ROW_SECONDS * int(row["rows"]))
    return round(seconds, 6) if slow else None


def _slowness(tasks: int, loads: Mapping[int, Row]) -> dict[int, float]:
    """How long a light row takes on each task beside the median one; of all tasks, or of none."""
    rates = {}
    for number, row in loads.items():
        if _busy(row) is None or int(row["light_rows"]) < LEAST_LIGHT_ROWS:
            return {}
        rates[number] = max(0.0, float(row["task_seconds"]) - float(row["key_seconds"] or 0.0)) / int(row["light_rows"])
    if len(rates) < tasks or min(rates.values()) <= 0:
        return {}
    middle = float(np.median(list(rates.values())))
    return {number: round(rate / middle, 4) for number, rate in rates.items()}


def _loads(
    spark: SparkSession,
    run: RunDirectory,
    plan: RoutingPlan,
    files: Sequence[CommittedFile],
) -> dict[int, Row]:
    """Counts by task index; the Python states must have seen as many rows as the native ones."""
    counted = [file for file in files if file.kind == NATIVE]
    if not counted:
        return {}
    python = [file for file in files if file.kind == PYTHON]
    counts = read_files(spark, run, counted).select([TASK, *COUNTS])
    if python:
        seen = read_files(spark, run, python)
        light = F.when(F.col("key_seconds").isNull(), F.col("python_rows")).alias("light_rows")
        counts = counts.unionByName(
            seen.select(TASK, "python_rows", "key_seconds", "task_seconds", "setup_seconds", light),
            allowMissingColumns=True,
        )
    else:
        missing = {name: F.lit(None).cast("double") for name in ("key_seconds", "task_seconds", "setup_seconds")}
        missing |= {name: F.lit(None).cast("bigint") for name in ("python_rows", "light_rows")}
        counts = counts.withColumns(missing)
    summed = counts.groupBy(TASK).agg(
        *(F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in (*COUNTS, "python_rows", "light_rows")),
        *(F.sum(name).alias(name) for name in ("key_seconds", "task_seconds", "setup_seconds")),
        F.count(F.when(F.col("rows") > 0, 1)).alias("states"),
    )
    loads = {int(row[TASK]): row for row in summed.collect()}
    if python:
        _require_same_rows(plan, loads)
    return loads


def _require_same_rows(plan: RoutingPlan, loads: Mapping[int, Row]) -> None:
    odd = next((row for row in loads.values() if row["rows"] != row["python_rows"]), None)
    if odd:
        raise LedgerError(
            f"stage {plan.epoch}, task {plan.tasks[odd[TASK]]}", f"{odd['rows']:,} rows in its Python states",
            f"{odd['python_rows']:,}", "nothing was committed",
        )  # fmt: skip


def _histogram(
    spark: SparkSession,
    run: RunDirectory,
    columns: JobColumns,
    plan: RoutingPlan,
    files: Sequence[CommittedFile],
    tasks: Sequence[TaskLoad],
    admitted: int,
) -> Histogram:
    """Exact counts per key: rows seen in all stages so far, of which ``admitted`` in this, and rows left over."""
    slots = 1 << plan.ring.ring_bits
    stages = [(run.committed(stage_step(stage)).files, run.report(stage).tasks) for stage in range(plan.epoch)]
    stages.append((tuple(files), tuple(tasks)))
    parts = []
    for number, (written, _) in enumerate(stages):
        counted = [file for file in written if file.kind == NATIVE]
        if counted:
            # What earlier stages left over has been queued again since.
            left = F.col("left_over") if number == plan.epoch else F.lit(0).cast("bigint")
            states = read_files(spark, run, counted)
            parts.append(states.select(*columns.keys, F.col("admitted").alias("seen"), left.alias("left")))
    if not parts:
        nothing = (0,) * slots
        return Histogram(
            seen_rows=0, seen_null_rows=0, backlog_null_rows=0, head={}, seen_tail=nothing, backlog_tail=nothing
        )
    timed = all(load.busy_seconds is not None for load in tasks if load.processed_rows) and bool(tasks)
    if timed:
        parts += [_key_seconds(spark, run, columns, *stage) for stage in stages if stage[1]]
    counts = parts[0]
    for part in parts[1:]:
        counts = counts.unionByName(part, allowMissingColumns=True)
    sums = [F.sum(name).alias(name) for name in ("seen", "left", *(("seconds",) if timed else ()))]
    per_key = counts.groupBy(columns.routing_key.alias("key")).agg(*sums)
    spent = math.fsum(load.busy_seconds or 0.0 for _, loads in stages for load in loads) if timed else None
    seen_rows = sum(run.report(stage).admitted_rows for stage in range(plan.epoch)) + admitted
    left_rows = sum(load.backlog_rows for load in tasks)
    return _summed(per_key, columns, plan, (max(1, seen_rows), max(1, left_rows)), spent)


def _key_seconds(
    spark: SparkSession,
    run: RunDirectory,
    columns: JobColumns,
    files: Sequence[CommittedFile],
    tasks: Sequence[TaskLoad],
) -> DataFrame:
    """Seconds of the keys that were timed apart in a stage, as the median task would have taken."""
    python = [file for file in files if file.kind == PYTHON]
    slow = {number: load.slowness for number, load in enumerate(tasks) if load.slowness is not None}
    states = read_files(spark, run, python).where(F.col("key_seconds").isNotNull())
    if not slow:
        return states.select(*columns.keys, F.col("key_seconds").alias("seconds"))
    table = pa.table({TASK: pa.array(slow, pa.int32()), "slowness": pa.array(slow.values(), pa.float64())})
    slowness = F.broadcast(spark.createDataFrame(table))
    seconds = F.col("key_seconds") / F.coalesce(F.col("slowness"), F.lit(1.0))
    return states.join(slowness, TASK, "left").select(*columns.keys, seconds.alias("seconds"))


def _summed(
    per_key: DataFrame, columns: JobColumns, plan: RoutingPlan, rows: tuple[int, int], spent: float | None
) -> Histogram:
    """The histogram from the counts of each key.

    Args:
        per_key: ``key``, ``seen``, ``left``, and ``seconds`` where keys were timed.
        columns: the job's columns.
        plan: the stage's plan.
        rows: seen so far and left over now, of all keys together.
        spent: seconds of all keys together, where they were timed.
    """
    slots = 1 << plan.ring.ring_bits
    seen, left = np.zeros(slots, dtype=np.int64), np.zeros(slots, dtype=np.int64)
    null_seen = null_left = 0
    heaviest = []
    for row in head_and_slots(per_key, plan.ring.ring_bits, columns.job.spec.routing.head_limit, rows).collect():
        if row["share"] is not None:
            heaviest.append(row)
        elif row["slot"] is None:
            null_seen, null_left = int(row["seen"]), int(row["left"])
        else:
            seen[row["slot"]], left[row["slot"]] = row["seen"], row["left"]
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
    )


def head_and_slots(per_key: DataFrame, ring_bits: int, head_limit: int, rows: tuple[int, int]) -> DataFrame:
    """The heaviest keys one by one and all keys by slot of the ring, in one reading of the counts.

    Args:
        per_key: ``key``, ``seen``, ``left``, and others that are summed too.
        ring_bits: of the ring, which has two to the power of that many slots.
        head_limit: keys that are named at most.
        rows: seen so far and left over now, of all keys together.

    Returns:
        The columns of ``per_key``, ``share`` and ``slot``. A row with a share is of the head, one without
        is a slot, and one without either is the null key.
    """
    slotted = _by_slot(per_key, ring_bits)
    return slotted.unionByName(_head(per_key, head_limit, rows), allowMissingColumns=True)


def _by_slot(per_key: DataFrame, ring_bits: int) -> DataFrame:
    """Rows per slot of the ring. A null key hashes like any other value, but has no slot."""
    on_ring = F.when(F.col("key").isNotNull(), slot(F.col("key"), ring_bits))
    # All that the head has, so that both are made of one reading of the counts.
    counted = [name for name in per_key.columns if name != "key"]
    sums = per_key.groupBy(on_ring.alias("slot")).agg(*(F.sum(name).alias(name) for name in counted))
    return sums.withColumn("key", F.lit(None).cast("string"))


def _head(per_key: DataFrame, head_limit: int, rows: tuple[int, int]) -> DataFrame:
    """The keys with the largest share of what was seen or of what is left over, the heaviest first.

    A backlog is no sample of what came: its heavy keys are its own. A key that is no UTF-8 cannot be
    written into a plan, and stays on the ring; so does null, which is no key.
    """
    seen_rows, left_rows = rows
    share = F.greatest(F.col("seen") / seen_rows, F.col("left") / left_rows)
    # Filtered last: Spark would move it to where the counts are read, and read them twice.
    named = F.is_valid_utf8("key") & (F.length("key") <= LONGEST_HEAD_KEY)
    heaviest = per_key.withColumn("share", F.when(named, share)).orderBy(F.desc_nulls_last("share"), "key")
    return heaviest.limit(head_limit).where(F.col("share").isNotNull())
