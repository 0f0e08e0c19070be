"""The engine ``combine``: states are made where rows are read, and merged before they are written where that is all.

Spark itself combines native states key by key. The Python states of a run that ends in its stage are merged and
evaluated behind an exchange of the same query, in the order of keys and splits, as the merge would do it.

Native states and results of a first stage are one row per key, and have two extra columns: the slot of the ring, and
the text of a heavy key. The histogram is made from these, without a Spark job, however many keys there are. Other
Python states are one row per key and split: their histogram is made as after a routed stage.

With a window of many parts, rows are sent to the task of their part instead, where states would be many: it makes the
only state of each key of the part, in the files that are kept, so that a state is neither merged nor written again.

Python states say of which split they are. For native states, and for results, there are Spark's own counts of each
split: rows read, states sent on, seconds. They cost no job. Spark reads and aggregates rows in one generated loop.
Counting rows by split there would be slow: an observation takes them out of the loop, and a ``groupBy`` with a sum
takes 50 % longer. But every Spark task reports how many rows it read and how many records it sent on, which are its
partial states. These counts are used only if their rows add up to the rows of the states.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from skewless.columns import numbers
from skewless.document import LARGEST_COUNT
from skewless.documents.commit import CommittedFile
from skewless.documents.job import Job
from skewless.documents.stage_report import LONGEST_HEAD_KEY, Histogram, SplitLoad, StageReport
from skewless.errors import LedgerError
from skewless.planner.engine_choice import KEYS_OF_A_TASK
from skewless.run.directory import RunDirectory
from skewless_spark.branches import branches_of, evaluate, kinds_of, merge_in_order, union_of
from skewless_spark.branches.native import Native, slot_of_key
from skewless_spark.branches.python import Python
from skewless_spark.engines.engine import Engine, few_partitions
from skewless_spark.session.step_measures import SILENT, JobsSeen, Told
from skewless_spark.session.versions import is_valid_utf8
from skewless_spark.sources.formats.parquet import open_parquet
from skewless_spark.stage.measured_stage import key_histogram, report_of, split_loads
from skewless_spark.stage.routes import SLOT, TASK, Stage, unrouted_queue
from skewless_spark.stage.state_counts import COUNTS, CountsRead
from skewless_spark.states.committed_files import EVALUATED, NATIVE, PYTHON, Reader, counting, of_kinds
from skewless_spark.states.job_columns import HASH, PART, WHOLE

log = logging.getLogger(__name__)

#: The text of a key that has one state or one result, if it is heavy.
HEAVY = "heavy_key"
#: Rows are sent by their parts if a state has at most so many: to send one costs a tenth of merging a state.
SENT_ROWS = 8
#: Rows whose states are in one file, of parts whose states are made where rows are read.
_FILE_ROWS = 1 << 20
#: Keys that are read back at a time, one or two megabytes.
_BATCH_KEYS = 1 << 17


class Combine(Engine):
    """Rows are reduced in the input splits where they are read."""

    merges = True

    def outcome(self, stage: Stage) -> DataFrame:
        """See ``Engine``."""
        # Native and Python states read the input separately: there is no exchange that they could share.
        first, *others = branches_of(stage.columns)
        # The wave's rows are counted by one of them.
        rest = [_MADE[one.kind](replace(stage, tally=None)).drop(*COUNTS, HASH) for one in others]
        outcome = union_of([_MADE[first.kind](stage), *rest])
        if not self.in_parts(stage, kinds_of(stage)):
            return outcome
        if len(stage.columns.job.covered.reduced) > 1 and not _tasks_by_part(stage):
            files = ", ".join(str(1 + rows // _FILE_ROWS) for rows in _rows_of_parts(stage.columns.job))
            number = f"pmod(xxhash64({', '.join(stage.columns.keys)}), array({files})[{PART}])"
            outcome = outcome.repartition(PART, F.expr(number))
        return outcome.drop(*COUNTS[1:])

    def partitions(self, stage: Stage) -> int:
        """As many as the states that the engine was chosen for need."""
        return _tasks_by_part(stage) or max(few_partitions(stage, _expected_states(stage)), _tasks_of_parts(stage))

    def splits(self, stage: Stage) -> int:
        """More for parts of a window that have many states, as long as none is cut: a split has all of its states."""
        return max(super().splits(stage), min(len(stage.columns.job.covered.reduced), _tasks_of_parts(stage)))

    def reader(self, stage: Stage, read: CountsRead) -> Reader | None:
        """None where a row for each key names slot and heavy key: its key is not read, see ``_of_rows``."""
        first, *_ = branches_of(stage.columns)
        one_each = not stage.plan.epoch and (first.kind == NATIVE or stage.evaluates)
        return None if one_each else read.take

    def report(self, stage: Stage, files: Sequence[CommittedFile], read: CountsRead, seen: JobsSeen) -> StageReport:
        """See ``Engine``."""
        plan = stage.plan
        one_each = [] if plan.epoch else of_kinds(files, NATIVE, EVALUATED)
        if one_each:
            histogram, hashed = _of_rows(stage, one_each)
            rows = admitted = histogram.seen_rows
        else:
            sums = read.sums(counting(files))
            counts = ("rows", "admitted", HASH)
            rows, admitted, hashed = (sum(pc.sum(one[name]).as_py() or 0 for one in sums) for name in counts)
            histogram = key_histogram(stage, files, read, (), admitted)
        splits = _splits_told(stage, files, read, rows) or splits_seen(seen, rows)
        if _tasks_by_part(stage):  # splits have sent on rows
            splits = tuple(one.model_copy(update={"states": None}) for one in splits)
        totals = dict.fromkeys(COUNTS, 0) | {"rows": rows, "admitted": admitted, HASH: hashed}
        return report_of(plan, totals, histogram, splits=splits)


def _expected_states(stage: Stage) -> int:
    """The states that the engine was chosen for; 0 if nothing was known of the keys."""
    epoch = stage.plan.epoch
    choice = stage.run.decision(epoch).engine if stage.run.exists(f"decisions/{epoch:04d}.json") else None
    return choice.states if choice is not None else 0


def _tasks_of_parts(stage: Stage) -> int:
    """How many tasks have the states of the parts of a window in hash maps; 0 without a window."""
    return _expected_states(stage) // KEYS_OF_A_TASK if stage.columns.job.covered.reduced else 0


def _tasks_by_part(stage: Stage) -> int:
    """How many tasks the rows are sent to by their parts; 0 unless a state has few, and no part over a slot's share."""
    job, rows = stage.columns.job, stage.columns.job.rows
    if not (job.counted and rows and Combine().in_parts(stage, kinds_of(stage))):
        return 0
    states = _expected_states(stage)
    if max(_rows_of_parts(job)) * job.slots_at() > rows or (states and rows > SENT_ROWS * states):
        return 0
    return min(len(job.covered.reduced), max(len(stage.plan.tasks), -(-(states or rows) // KEYS_OF_A_TASK)))


def _rows_of_parts(job: Job) -> list[int]:
    """The rows that are reduced of each part of the window, where they are counted."""
    rows = numbers(job.units, "rows")
    return [int(rows[slice(*part.units)].sum()) for part in job.covered.parts]


def _native_states(stage: Stage) -> DataFrame:
    columns, native = stage.columns, Native(stage.columns)
    queue, tasks = unrouted_queue(stage), _tasks_by_part(stage)
    states = native.made(queue.repartition(tasks, PART) if tasks else queue, columns.groups, ("rows", "admitted"))
    # A key has one native state, combined from all splits, so it belongs to no split.
    nothing = [f"CAST(0 AS BIGINT) AS {name}" for name in ("left_over", "forwarded")]
    states = states.selectExpr("*", f"0 AS {TASK}", f"'{NATIVE}' AS kind", *nothing, *_named(stage))
    return native.evaluated_in_stage(states, None, HEAVY) if stage.evaluates else states


def _python_states(stage: Stage) -> DataFrame:
    columns, python, rows = stage.columns, Python(stage.columns), unrouted_queue(stage)
    # Without a backlog, all rows came with the wave. States, not rows, are given the number of their split.
    rows = rows if stage.plan.epoch else rows.drop("arrival")
    states = python.made(rows, apart=False, counted=True).withColumn(TASK, F.spark_partition_id())
    if not stage.evaluates:
        return states.withColumn("kind", F.lit(PYTHON))
    # In as many partitions as the stage shuffles into. The states of a key are merged in the order of splits, since
    # sums of floating-point numbers are rounded at each step.
    keyed = states.withColumn("stage", F.lit(0)).repartition(*columns.keys)
    results = evaluate(merge_in_order(keyed.sortWithinPartitions(*columns.keys, TASK), columns), columns)
    about = [f"0 AS {TASK}", "rows", HASH, "rows AS admitted", *_named(stage), f"true AS {WHOLE}"]
    return results.selectExpr(*columns.keys, *about, *columns.results)


_MADE = {NATIVE: _native_states, PYTHON: _python_states}


def _named(stage: Stage) -> list[str]:
    """In SQL, the columns ``SLOT`` and ``HEAVY`` of rows that are one for each key.

    A key is heavy if it has at least one in ``head_limit`` of all listed rows: at most ``head_limit`` keys have.
    """
    job, key = stage.columns.job, stage.columns.routing_sql()
    limit = job.spec.routing.head_limit
    least = -(-job.admitted_rows(stage.plan.waves) // limit) if limit else LARGEST_COUNT
    heavy = f"{is_valid_utf8(key)} AND length({key}) <= {LONGEST_HEAD_KEY} AND rows >= {least}"
    return [slot_of_key(stage.columns, stage.plan), f"IF({heavy}, {key}, NULL) AS {HEAVY}"]


def _splits_told(stage: Stage, files: Sequence[CommittedFile], read: CountsRead, rows: int) -> tuple[SplitLoad, ...]:
    """The loads of the splits that Python states say that they are of; empty without such states."""
    splits = split_loads(read, files)
    if splits and (counted := sum(split.rows for split in splits)) != rows:
        raise LedgerError(
            f"stage {stage.plan.epoch}", f"{rows:,} rows in its Python states", f"{counted:,}", "nothing was committed"
        )
    return splits


def _batches(run: RunDirectory, files: Sequence[CommittedFile]) -> Iterator[pa.RecordBatch]:
    for file in files:
        with run.fs.open(f"{run.root}/{file.path}", "rb") as opened:
            yield from open_parquet(opened).iter_batches(_BATCH_KEYS, columns=["rows", HASH, SLOT, HEAVY])


def _of_rows(stage: Stage, files: Sequence[CommittedFile]) -> tuple[Histogram, int]:
    """The histogram of a first stage from rows that are one for each key, of the wave only; and the sum of hashes."""
    plan = stage.plan
    slots = 1 << plan.ring.ring_bits
    tail, nulls, keys, hashed = np.zeros(slots, dtype=np.int64), 0, 0, 0
    heavy: list[tuple[int, str]] = []
    for batch in _batches(stage.run, files):
        known = pc.is_valid(batch[SLOT])
        of_keys = batch.filter(known)
        rows = of_keys["rows"].to_numpy()
        # Weights are doubles: counts are whole below 2**53, and so are their sums.
        tail += np.bincount(of_keys[SLOT].to_numpy(), weights=rows, minlength=slots).astype(np.int64)
        nulls += int(pc.sum(batch.filter(pc.invert(known))["rows"]).as_py() or 0)
        keys += len(of_keys)
        hashed += pc.sum(batch[HASH]).as_py() or 0
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
    histogram = Histogram(
        seen_rows=seen, seen_null_rows=nulls, backlog_null_rows=0, head=head, seen_tail=tail,
        backlog_tail=np.zeros_like(tail), keys=keys,
    )  # fmt: skip
    return histogram, hashed


def splits_seen(seen: JobsSeen, rows: int) -> tuple[SplitLoad, ...]:
    """The load of each input split by its number; empty if it is not known, or if the rows do not add up."""
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
    states = int(metrics["shuffleWriteMetrics"]["recordsWritten"]) if sent_on else None
    return SplitLoad(
        rows=int(metrics["inputMetrics"]["recordsRead"]),
        states=states,
        busy_seconds=round(metrics["executorRunTime"] / 1000.0, 3),
    )
