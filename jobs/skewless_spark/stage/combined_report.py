"""The report of a stage of the engine ``combine``: its counts, the loads of its input splits, and the key histogram.

Nothing is read twice. Native states of the first stage are one row per key, and have two extra columns: the slot of
the ring, and the text of a heavy key. The histogram is made from these, without a Spark job. Python states are one row
per key and split: their histogram is computed by Spark from the counts alone, as after a routed stage.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from skewless.documents.commit import CommittedFile
from skewless.documents.stage_report import Histogram, SplitLoad, StageReport
from skewless.errors import LedgerError
from skewless.routing.plan import RoutingPlan
from skewless.run.directory import RunDirectory
from skewless_spark.session.spark_jobs import JobsSeen
from skewless_spark.stage.histogram import key_histogram
from skewless_spark.stage.reduction import HEAVY, SLOT, StateCounts
from skewless_spark.stage.splits_seen import splits_seen
from skewless_spark.stage.state_counts import CountsRead
from skewless_spark.stage.task_loads import split_loads
from skewless_spark.states.columns import JobColumns
from skewless_spark.states.committed_files import EVALUATED, NATIVE, PYTHON

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
    splits = split_loads(read, files) or splits_seen(seen, rows)
    of_native = [file for file in files if file.kind in {NATIVE, EVALUATED}]
    if of_native and not plan.epoch:
        histogram = _of_native(run, columns, plan, of_native)
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


def _of_native(run: RunDirectory, columns: JobColumns, plan: RoutingPlan, files: Sequence[CommittedFile]) -> Histogram:
    """The histogram from native states of a first stage: one state per key, and rows of the wave only."""
    slots = 1 << plan.ring.ring_bits
    tail, nulls, keys = np.zeros(slots, dtype=np.int64), 0, 0
    heavy: list[tuple[int, str]] = []
    for file in files:
        with run.fs.open(f"{run.root}/{file.path}", "rb") as opened:
            parquet = pq.ParquetFile(opened, page_checksum_verification=True)
            for batch in parquet.iter_batches(_BATCH_KEYS, columns=["rows", SLOT, HEAVY]):
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
