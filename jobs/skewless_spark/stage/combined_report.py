"""The report of a stage of the engine ``combine``: its counts, the loads of its input splits, and the key histogram.

Native states and results of a first stage are one row per key, and have two extra columns: the slot of the ring, and
the text of a heavy key. The histogram is made from these, without a Spark job. Python states that are not evaluated are
one row per key and split: their histogram is made as after a routed stage.

Python states say of which split they are. For native states there are Spark's own counts of each split: rows read,
states sent on, seconds. They cost no job. Spark reads and aggregates rows in one generated loop. Counting rows by split
there would be slow: an observation takes them out of the loop, and a ``groupBy`` with a sum takes 50 % longer. But
every Spark task reports how many rows it read and how many records it sent on, which are its partial states. These
counts are used only if their rows add up to the rows of the states.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from skewless.documents.commit import CommittedFile
from skewless.documents.stage_report import Histogram, SplitLoad, StageReport
from skewless.errors import LedgerError
from skewless.routing.plan import RoutingPlan
from skewless.run.directory import RunDirectory
from skewless_spark.session.spark_jobs import SILENT, JobsSeen, Told
from skewless_spark.stage.combining import HEAVY, StateCounts
from skewless_spark.stage.histogram import key_histogram
from skewless_spark.stage.reduction import SLOT
from skewless_spark.stage.state_counts import CountsRead
from skewless_spark.stage.task_loads import split_loads
from skewless_spark.states.columns import JobColumns
from skewless_spark.states.committed_files import EVALUATED, NATIVE, PYTHON, parquet_of
from skewless_spark.states.python_evaluation import SPLITS

log = logging.getLogger(__name__)

#: Keys that are read back at a time, one or two megabytes.
_BATCH_KEYS = 1 << 17


def combined_report(
    spark: SparkSession,
    run: RunDirectory,
    columns: JobColumns,
    plan: RoutingPlan,
    files: Sequence[CommittedFile],
    counts: StateCounts,
    read: CountsRead,
    seen: JobsSeen,
    seconds: Callable[[], float],
) -> StageReport:
    """The report of a stage that processed all rows that were left.

    Args:
        spark: the session.
        run: the run directory; earlier stages have committed.
        columns: the job's columns.
        plan: the stage's plan.
        files: the files that the stage wrote.
        counts: the rows that its states stand for.
        read: reads the counts of files.
        seen: the jobs of the stage, with Spark's own counts of the splits of native states.
        seconds: returns the wall time of the stage so far; called last.

    Raises:
        LedgerError: native and Python states saw different rows.
    """
    rows, admitted = 0, 0
    if files:  # without any there was nothing to count
        native, python = counts.of(NATIVE), counts.of(PYTHON)
        rows, admitted = native or python or (0, 0)
        if native and python and native != python:
            raise LedgerError(
                f"stage {plan.epoch}", f"{native[0]:,} rows in its Python states", f"{python[0]:,}",
                "nothing was committed",
            )  # fmt: skip
    single = [file for file in files if file.kind in {NATIVE, EVALUATED}] if not plan.epoch else []
    if single and not columns.makes_native:
        splits = _splits_written(run, single)
    else:
        splits = split_loads(read, files) or splits_seen(seen, rows)
    if single:
        histogram = _of_rows(run, columns, plan, single)
    else:
        histogram = key_histogram(spark, run, columns, plan, files, read, (), admitted)
    return StageReport(
        stage=plan.epoch,
        waves=plan.waves,
        admitted_rows=admitted,
        backlog_in_rows=rows - admitted,
        forwarded_rows=0,
        processed_rows=rows,
        backlog_rows=0,
        stage_seconds=round(seconds(), 3),
        tasks=(),
        splits=_adding_up(plan, splits, rows),
        histogram=histogram,
    )


def _adding_up(plan: RoutingPlan, splits: tuple[SplitLoad, ...], rows: int) -> tuple[SplitLoad, ...]:
    if splits and (found := sum(one.rows for one in splits)) != rows:
        raise LedgerError(
            f"stage {plan.epoch}", f"{rows:,} rows in its input splits", f"{found:,}", "nothing was committed"
        )
    return splits


def _splits_written(run: RunDirectory, files: Sequence[CommittedFile]) -> tuple[SplitLoad, ...]:
    """The loads of the splits whose states were merged into results, by their numbers."""
    known = pa.table({"split": pa.array([], pa.int32())})
    names = ("rows", "states", "seconds")
    # Each batch that a task made has an entry for each split. They are added up at once, as there may be many.
    for batch in _batches(run, files, [SPLITS]):
        found = pa.Table.from_struct_array(pc.drop_null(batch[SPLITS]).flatten())
        sums = pa.concat_tables([known, found], promote_options="permissive").group_by("split", use_threads=False)
        known = sums.aggregate([(name, "sum") for name in names]).rename_columns(["split", *names])
    splits = [SplitLoad(rows=0, states=0) for _ in range(1 + max(known["split"].to_pylist(), default=-1))]
    for one in known.to_pylist():
        seconds = round(one["seconds"], 6)
        splits[one["split"]] = SplitLoad(rows=one["rows"], states=one["states"], busy_seconds=seconds)
    return tuple(splits)


def _batches(run: RunDirectory, files: Sequence[CommittedFile], names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    for file in files:
        with run.fs.open(f"{run.root}/{file.path}", "rb") as opened:
            yield from parquet_of(opened).iter_batches(_BATCH_KEYS, columns=list(names))


def _of_rows(run: RunDirectory, columns: JobColumns, plan: RoutingPlan, files: Sequence[CommittedFile]) -> Histogram:
    """The histogram of a first stage from rows that are one for each key, of the wave only."""
    slots = 1 << plan.ring.ring_bits
    tail, nulls, keys = np.zeros(slots, dtype=np.int64), 0, 0
    heavy: list[tuple[int, str]] = []
    for batch in _batches(run, files, ["rows", SLOT, HEAVY]):
        known = pc.is_valid(batch[SLOT])
        of_keys = batch.filter(known)
        rows = of_keys["rows"].to_numpy()
        # Weights are doubles: counts are whole below 2**53, and so are their sums.
        tail += np.bincount(of_keys[SLOT].to_numpy(), weights=rows, minlength=slots).astype(np.int64)
        nulls += int(pc.sum(batch.filter(pc.invert(known))["rows"]).as_py() or 0)
        keys += len(of_keys)
        named = of_keys.filter(pc.is_valid(of_keys[HEAVY]))
        heavy += zip(named["rows"].to_pylist(), named[HEAVY].to_pylist(), strict=True)
    of_key: dict[str, int] = {}
    for rows, key in heavy:  # with a window a key has a state in each part
        of_key[key] = of_key.get(key, 0) + rows
    heaviest = sorted(of_key.items(), key=lambda one: (-one[1], one[0]))
    head = {key: (rows, 0) for key, rows in heaviest[: columns.job.spec.routing.head_limit]}
    seen = int(tail.sum()) + nulls
    for key, (rows, _) in head.items():
        tail[plan.ring.slot_of(key)] -= rows
    return Histogram(
        seen_rows=seen, seen_null_rows=nulls, backlog_null_rows=0, head=head, seen_tail=tuple(tail.tolist()),
        backlog_tail=(0,) * slots, keys=keys,
    )  # fmt: skip


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
