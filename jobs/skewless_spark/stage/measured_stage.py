"""The report of a stage, from the files that it wrote: rows, states and seconds of tasks, and the histogram of keys.

Only a few columns of counts are read back, neither input nor backlog: by the driver where the run's states are few,
and otherwise by Spark. Then only the head and the slots of the ring reach the driver.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from skewless.document import HASHES
from skewless.documents.commit import CommittedFile
from skewless.documents.stage_report import LONGEST_HEAD_KEY, Histogram, SplitLoad, StageReport, TaskLoad
from skewless.errors import LedgerError
from skewless.routing.plan import RoutingPlan
from skewless.run.directory import RunDirectory, stage_step
from skewless_spark.session.versions import is_valid_utf8, to_arrow
from skewless_spark.stage.routes import TASK, Stage, slot
from skewless_spark.stage.state_counts import COUNTS, FOUND, SECONDS, CountedStage, CountsRead, head_and_slots_here
from skewless_spark.states.committed_files import EVALUATED, NATIVE, PYTHON, counting, of_kinds, read_files
from skewless_spark.states.job_columns import HASH, JobColumns

#: A Python aggregate that takes less time than this per row, or a task that takes less in total, costs next to nothing.
#: Its time is not reported: it says more about other work of the machine, and no plan may depend on it.
SLOW_ROW_SECONDS = 3e-5
SLOW_TASK_SECONDS = 0.05
#: Sums over the states of one task; seconds that were not measured are None.
TaskCounts = Mapping[str, Any]


def task_counts(read: CountsRead, plan: RoutingPlan, files: Sequence[CommittedFile]) -> dict[int, TaskCounts]:
    """The counts of each task, by its number.

    Returns:
        ``rows``, ``left_over``, ``admitted``, ``forwarded`` and ``states``; for Python aggregates also
        ``python_rows`` and the seconds. Tasks without rows are left out.
    """
    parts = read.sums(of_kinds(files, EVALUATED, NATIVE, PYTHON))
    if not parts:
        return {}
    sums = pa.concat_tables(parts, promote_options="default")
    names = [name for name in sums.column_names if name != TASK]
    summed = sums.group_by(TASK, use_threads=False).aggregate([(name, "sum") for name in names])
    # Without Python aggregates nothing was timed.
    nothing = {**dict.fromkeys((*COUNTS, HASH, "states", "python_rows", "python_hash"), 0), **dict.fromkeys(SECONDS)}
    loads: dict[int, TaskCounts] = {}
    for row in summed.to_pylist():
        found = {name: row[f"{name}_sum"] for name in names}
        loads[int(row[TASK])] = nothing | {name: value for name, value in found.items() if value is not None}
    if "python_rows" in names:
        _require_same_rows(plan, loads)
    return loads


def split_loads(read: CountsRead, files: Sequence[CommittedFile]) -> tuple[SplitLoad, ...]:
    """The loads of the input splits that made Python states, by split number; empty without such states."""
    parts = read.sums(of_kinds(files, PYTHON))
    if not parts:
        return ()
    names = ("python_rows", "python_states", "task_seconds", "setup_seconds")
    sums = pa.concat_tables(parts).group_by(TASK, use_threads=False).aggregate([(name, "sum") for name in names])
    splits = [SplitLoad(rows=0, states=0) for _ in range(1 + pc.max(sums[TASK]).as_py())]
    for number, rows, states, *seconds in zip(*(column.to_pylist() for column in sums.columns), strict=True):
        spent = round(sum(filter(None, seconds)), 6)
        splits[number] = SplitLoad(rows=rows, states=states, busy_seconds=spent)
    return tuple(splits)


def task_loads(plan: RoutingPlan, loads: Mapping[int, TaskCounts]) -> tuple[TaskLoad, ...]:
    """The loads of all tasks of a plan, in its order, from ``task_counts``."""
    return tuple(_task_load(str(task), loads.get(number)) for number, task in enumerate(plan.tasks))


def _task_load(name: str, row: TaskCounts | None) -> TaskLoad:
    if row is None:
        return TaskLoad(task=name, queued_rows=0, processed_rows=0, backlog_rows=0, states=0)
    processed, left_over = int(row["rows"]), int(row["left_over"])
    return TaskLoad(
        task=name, queued_rows=processed + left_over, processed_rows=processed, backlog_rows=left_over,
        states=int(row["states"]), busy_seconds=_busy(row),
    )  # fmt: skip


def _busy(row: TaskCounts) -> float | None:
    """Seconds in the Python aggregates; None if too few to matter, since native aggregates may take longer."""
    if row["task_seconds"] is None:
        return None
    seconds = float(row["task_seconds"]) + float(row["setup_seconds"] or 0.0)
    slow = seconds >= max(SLOW_TASK_SECONDS, SLOW_ROW_SECONDS * int(row["rows"]))
    return round(seconds, 6) if slow else None


def _require_same_rows(plan: RoutingPlan, loads: Mapping[int, TaskCounts]) -> None:
    def differ(row: TaskCounts) -> bool:
        return bool(row["rows"] != row["python_rows"] or (row[HASH] - row["python_hash"]) % HASHES)

    odd = next((number for number, row in loads.items() if differ(row)), None)
    if odd is not None:
        raise LedgerError(
            f"stage {plan.epoch}, task {plan.tasks[odd]}", f"{loads[odd]['rows']:,} rows in its Python states",
            f"{loads[odd]['python_rows']:,}, or others", "nothing was committed",
        )  # fmt: skip


def measure(stage: Stage, files: Sequence[CommittedFile], read: CountsRead) -> StageReport:
    """The report of a stage whose files are written but not committed; its seconds are not known yet."""
    counts = task_counts(read, stage.plan, files)
    totals = {name: sum(int(of_task[name]) for of_task in counts.values()) for name in (*COUNTS, HASH)}
    tasks = task_loads(stage.plan, counts)
    histogram = key_histogram(stage, files, read, tasks, totals["admitted"])
    # The states that tasks found in files of earlier stages; nothing where keys have a state in each stage.
    found = {name: [int(of_task[name]) for of_task in counts.values() if name in of_task] for name in FOUND}
    states = {name: sum(numbers) for name, numbers in found.items() if numbers}
    return report_of(stage.plan, totals, histogram, tasks=tasks, **states)


def report_of(plan: RoutingPlan, totals: Mapping[str, int], histogram: Histogram, **loads: Any) -> StageReport:
    """The report of a stage: from the counts of the ledger, the keys, and the loads of its tasks or input splits."""
    return StageReport(
        stage=plan.epoch,
        waves=plan.waves,
        admitted_rows=totals["admitted"],
        backlog_in_rows=totals["rows"] + totals["left_over"] - totals["admitted"],
        forwarded_rows=totals["forwarded"],
        processed_rows=totals["rows"],
        backlog_rows=totals["left_over"],
        rows_hash=totals[HASH] % HASHES,
        stage_seconds=0.0,
        histogram=histogram,
        **{"tasks": (), **loads},
    )


def key_histogram(
    stage: Stage, files: Sequence[CommittedFile], read: CountsRead, tasks: Sequence[TaskLoad], admitted: int
) -> Histogram:
    """Exact counts per key: rows seen in all stages so far, and rows left over.

    Args:
        tasks: the loads of its tasks; empty if nothing was routed.
        admitted: the rows that the stage admitted, which are among those seen.
    """
    run, columns, plan = stage.run, stage.columns, stage.plan
    slots = 1 << plan.ring.ring_bits
    reports = [run.report(before) for before in range(plan.epoch)]
    worked = [load for load in tasks if load.processed_rows]
    timed = bool(worked) and all(load.busy_seconds is not None for load in worked)
    written = [run.committed(stage_step(before)).files for before in range(plan.epoch)] + [tuple(files)]
    stages = [
        CountedStage(of_stage, timed, number == plan.epoch)
        for number, of_stage in enumerate(written)
        if counting(of_stage)
    ]
    if not stages:
        nothing = np.zeros(slots, dtype=np.int64)
        return Histogram(
            seen_rows=0, seen_null_rows=0, backlog_null_rows=0, head={}, seen_tail=nothing, backlog_tail=nothing
        )
    loads = [*tasks, *(load for report in reports for load in report.tasks)]
    spent = math.fsum(load.busy_seconds or 0.0 for load in loads)
    seen_rows = sum(report.admitted_rows for report in reports) + admitted
    left_rows = sum(load.backlog_rows for load in tasks)
    rows = (max(1, seen_rows), max(1, left_rows))
    found = head_and_slots_here(read, columns, stages, plan.ring.ring_bits, rows)
    if found is None:
        per_key = _per_key(stage.spark, run, columns, stages)
        # As columns: a ring may have a million slots, and a Python object for each would take seconds.
        found = to_arrow(head_and_slots(per_key, plan.ring.ring_bits, columns.job.spec.routing.head_limit, rows))
    return _summed(found, plan, spent if timed else None)


def _per_key(spark: SparkSession, run: RunDirectory, columns: JobColumns, stages: Sequence[CountedStage]) -> DataFrame:
    """``key``, ``seen``, ``left`` and, if keys are timed, ``seconds`` of each key, counted by Spark."""
    counts, *more = [part for stage in stages for part in _counted(spark, run, columns, stage)]
    for part in more:
        counts = counts.unionByName(part, allowMissingColumns=True)
    sums = [F.sum(name).alias(name) for name in ("seen", "left", "seconds") if name in counts.columns]
    return counts.groupBy(columns.routing_key.alias("key")).agg(*sums)


def _counted(spark: SparkSession, run: RunDirectory, columns: JobColumns, stage: CountedStage) -> list[DataFrame]:
    """The counts of one stage: ``seen``, ``left`` and, if keys are timed, ``seconds``, in some frames."""
    states = read_files(spark, run, stage.counted)
    leaves = stage.is_last and "left_over" in states.columns  # where a stage has evaluated, it has left nothing over
    left = F.col("left_over") if leaves else F.lit(0).cast("bigint")
    counts = [F.col("admitted").alias("seen"), left.alias("left")]
    if not stage.timed:
        return [states.select(*columns.keys, *counts)]
    seconds = F.col("key_seconds").alias("seconds")
    if stage.counted == stage.timed:
        return [states.select(*columns.keys, *counts, seconds)]
    return [
        states.select(*columns.keys, *counts),
        read_files(spark, run, stage.timed).where(F.col("key_seconds").isNotNull()).select(*columns.keys, seconds),
    ]


def _summed(found: pa.Table, plan: RoutingPlan, spent: float | None) -> Histogram:
    """The histogram from a table of ``head_and_slots``.

    Args:
        spent: seconds of all keys together; None if they were not timed.
    """
    slots = 1 << plan.ring.ring_bits
    seen, left = np.zeros(slots, dtype=np.int64), np.zeros(slots, dtype=np.int64)
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
        seen_tail=seen,
        backlog_tail=left,
        head_seconds=seconds,
        tail_seconds=max(0.0, spent - math.fsum(seconds.values())) if spent is not None else None,
        keys=keys,
    )


def head_and_slots(per_key: DataFrame, ring_bits: int, head_limit: int, rows: tuple[int, int]) -> DataFrame:
    """The heaviest keys one by one and all keys by slot of the ring, in one reading of the counts.

    Args:
        per_key: ``key``, ``seen``, ``left``, and others that are summed too.
        rows: rows seen so far, and rows left over now, of all keys together.

    Returns:
        The columns of ``per_key``, ``share``, ``slot`` and ``keys``. A row with a share is a key of the head. A row
        without a share is a slot with that many keys, or, without a slot too, the null key.
    """
    slotted = _by_slot(per_key, ring_bits)
    return slotted.unionByName(_head(per_key, head_limit, rows), allowMissingColumns=True)


def _by_slot(per_key: DataFrame, ring_bits: int) -> DataFrame:
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
    named = F.expr(is_valid_utf8("key")) & (F.length("key") <= LONGEST_HEAD_KEY)
    heaviest = per_key.withColumn("share", F.when(named, share)).orderBy(F.desc_nulls_last("share"), "key")
    return heaviest.limit(head_limit).where(F.col("share").isNotNull())
