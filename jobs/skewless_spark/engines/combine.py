"""The engine ``combine``: states are made where rows are read, and merged before they are written where that is all.

Spark itself combines native states key by key. The Python states of a run that ends in its stage are merged and
evaluated behind an exchange of the same query, in the order of keys and splits, as the merge would do it.

Native states and results of a first stage are one row per key, and have two extra columns: the slot of the ring, and
the text of a heavy key. The histogram is made from these, without a Spark job, however many keys there are. Other
Python states are one row per key and split: their histogram is made as after a routed stage.

Python states say of which split they are. For native states there are Spark's own counts of each split: rows read,
states sent on, seconds. They cost no job. Spark reads and aggregates rows in one generated loop. Counting rows by split
there would be slow: an observation takes them out of the loop, and a ``groupBy`` with a sum takes 50 % longer. But
every Spark task reports how many rows it read and how many records it sent on, which are its partial states. These
counts are used only if their rows add up to the rows of the states.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from skewless.document import LARGEST_COUNT
from skewless.documents.commit import CommittedFile
from skewless.documents.stage_report import LONGEST_HEAD_KEY, Histogram, SplitLoad, StageReport
from skewless.errors import LedgerError
from skewless.run.directory import RunDirectory
from skewless_spark.engines.engine import Engine, few_partitions
from skewless_spark.session.spark_jobs import SILENT, JobsSeen, Told
from skewless_spark.stage.histogram import key_histogram, report_of
from skewless_spark.stage.queue import Stage, unrouted_queue
from skewless_spark.stage.reduction import (
    COUNTS,
    KEPT,
    SLOT,
    counted_python_states,
    native_state_columns,
    python_states,
    slot_of_key,
    union_of,
)
from skewless_spark.stage.routing import TASK
from skewless_spark.stage.state_counts import CountsRead
from skewless_spark.stage.task_loads import split_loads, splits_of
from skewless_spark.states.committed_files import EVALUATED, NATIVE, PYTHON, Reader, counting, parquet_of
from skewless_spark.states.python_evaluation import SPLITS
from skewless_spark.states.python_reduction import ADMITTED
from skewless_spark.states.results import WHOLE, python_results_in_order, result_names, with_native_results

log = logging.getLogger(__name__)

#: The text of a key that has one state or one result, if it is heavy.
HEAVY = "heavy_key"
#: Keys that are read back at a time, one or two megabytes.
_BATCH_KEYS = 1 << 17


class Combine(Engine):
    """Rows are reduced in the input splits where they are read."""

    merges = True

    def outcome(self, stage: Stage, into: str | None = None) -> DataFrame:
        """See ``Engine``."""
        del into
        columns, branches = stage.columns, []
        # Native and Python states read the input separately: there is no exchange that they could share.
        if columns.makes_native:
            states = _native_states(stage)
            if stage.evaluates:
                return with_native_results(states, columns, None, (*KEPT, HEAVY))
            branches.append(states)
        if columns.python:
            # The wave's rows were counted by the other branch, if there is one.
            rows = unrouted_queue(replace(stage, tally=None) if branches else stage)
            # Without a backlog, all rows came with the wave. States, not rows, are given the number of their split.
            rows = rows if stage.plan.epoch else rows.drop("arrival")
            if stage.evaluates:
                return _evaluated(rows, stage)
            states = counted_python_states(rows.withColumn("kept", F.lit(True)), columns, apart=False)
            states = states.withColumns({TASK: F.spark_partition_id(), "kind": F.lit(PYTHON)})
            branches.append(states.drop(*COUNTS) if branches else states)
        return union_of(branches)

    def partitions(self, stage: Stage) -> int:
        """As many as the states that the engine was chosen for need."""
        epoch = stage.plan.epoch
        decided = stage.run.exists(f"decisions/{epoch:04d}.json")
        choice = stage.run.decision(epoch).engine if decided else None
        return few_partitions(stage, choice.states if choice is not None else 0)

    def reader(self, stage: Stage, read: CountsRead) -> Reader | None:
        """None where a row for each key names slot and heavy key: its key is not read, see ``_of_rows``."""
        one_each = not stage.plan.epoch and (stage.columns.makes_native or stage.evaluates)
        return None if one_each else read.take

    def report(self, stage: Stage, files: Sequence[CommittedFile], read: CountsRead, seen: JobsSeen) -> StageReport:
        """See ``Engine``."""
        columns, plan = stage.columns, stage.plan
        one_each = [] if plan.epoch else [file for file in files if file.kind in {NATIVE, EVALUATED}]
        if one_each:
            histogram = _of_rows(stage, one_each)
            rows = admitted = histogram.seen_rows
        else:
            rows, admitted = (_total(read, files, name) for name in ("rows", "admitted"))
            histogram = key_histogram(stage, files, read, (), admitted)
        if not columns.python:
            splits = splits_seen(seen, rows)
        else:
            splits = split_loads(read, files) or _splits_written(stage.run, files)
            if (found := sum(one.rows for one in splits)) != rows:
                raise LedgerError(
                    f"stage {plan.epoch}", f"{rows:,} rows in its Python states", f"{found:,}", "nothing was committed"
                )
        totals = dict.fromkeys(COUNTS, 0) | {"rows": rows, "admitted": admitted}
        return report_of(plan, totals, histogram, splits=splits)


def _native_states(stage: Stage) -> DataFrame:
    columns = stage.columns
    made = ["count(1) AS rows", f"count(IF(arrival = {ADMITTED}, 1, NULL)) AS admitted"]
    states = native_state_columns(unrouted_queue(stage), columns, columns.groups, made)
    # A key has one native state, combined from all splits, so it belongs to no split.
    nothing = [f"CAST(0 AS BIGINT) AS {name}" for name in ("left_over", "forwarded")]
    return states.selectExpr("*", f"0 AS {TASK}", f"'{NATIVE}' AS kind", *nothing, *_named(stage))


def _evaluated(rows: DataFrame, stage: Stage) -> DataFrame:
    """The result of each key, from the Python states of all splits."""
    columns = stage.columns
    states = python_states(rows, columns, apart=False).withColumns(
        {TASK: F.spark_partition_id(), "rows": F.col("python_rows")}
    )
    # In as many partitions as the stage shuffles into. The states of a key are merged in the order of splits, since
    # sums of floating-point numbers are rounded at each step.
    in_order = states.repartition(*columns.keys).sortWithinPartitions(*columns.keys, TASK)
    results = python_results_in_order(in_order, columns, splits=True)
    about = [f"0 AS {TASK}", "rows", "rows AS admitted", *_named(stage), f"true AS {WHOLE}", SPLITS]
    return results.selectExpr(*columns.keys, *about, *result_names(columns))


def _named(stage: Stage) -> list[str]:
    """In SQL, the columns ``SLOT`` and ``HEAVY`` of rows that are one for each key.

    A key is heavy if it has at least one in ``head_limit`` of all listed rows: at most ``head_limit`` keys have.
    """
    job, key = stage.columns.job, stage.columns.routing_sql()
    limit = job.spec.routing.head_limit
    least = -(-job.admitted_rows(stage.plan.waves) // limit) if limit else LARGEST_COUNT
    heavy = f"is_valid_utf8({key}) AND length({key}) <= {LONGEST_HEAD_KEY} AND rows >= {least}"
    return [slot_of_key(stage.columns, stage.plan), f"IF({heavy}, {key}, NULL) AS {HEAVY}"]


def _total(read: CountsRead, files: Sequence[CommittedFile], name: str) -> int:
    return sum(pc.sum(sums[name]).as_py() or 0 for sums in read.sums(counting(files)))


def _splits_written(run: RunDirectory, files: Sequence[CommittedFile]) -> tuple[SplitLoad, ...]:
    """The loads of the splits whose states were merged into results."""
    batches = _batches(run, [file for file in files if file.kind == EVALUATED], [SPLITS])
    return splits_of(pa.Table.from_struct_array(pc.drop_null(batch[SPLITS]).flatten()) for batch in batches)


def _batches(run: RunDirectory, files: Sequence[CommittedFile], names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    for file in files:
        with run.fs.open(f"{run.root}/{file.path}", "rb") as opened:
            yield from parquet_of(opened).iter_batches(_BATCH_KEYS, columns=list(names))


def _of_rows(stage: Stage, files: Sequence[CommittedFile]) -> Histogram:
    """The histogram of a first stage from rows that are one for each key, of the wave only."""
    plan = stage.plan
    slots = 1 << plan.ring.ring_bits
    tail, nulls, keys = np.zeros(slots, dtype=np.int64), 0, 0
    heavy: list[tuple[int, str]] = []
    for batch in _batches(stage.run, files, ["rows", SLOT, HEAVY]):
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
    head = {key: (rows, 0) for key, rows in heaviest[: stage.columns.job.spec.routing.head_limit]}
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
