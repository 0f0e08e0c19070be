"""One stage: admit a wave, re-route the backlog, reduce within the budget, commit."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession

from skewless.document import Document
from skewless.documents.commit import CommittedFile
from skewless.documents.job import Job
from skewless.documents.ledger import require_kept
from skewless.documents.stage_report import StageReport
from skewless.errors import LostRaceError
from skewless.routing.plan import RoutingPlan
from skewless.run.attempt import Attempt, Fence
from skewless.run.directory import STAGE_REPORT, RunDirectory, stage_step
from skewless.run.step_times import timed
from skewless_spark.session.file_systems import require_writer, workers_reach
from skewless_spark.session.spark_jobs import JobsSeen
from skewless_spark.session.step_lease import leased_step
from skewless_spark.session.step_times import RUN_QUERY
from skewless_spark.sources import Tally, require_unchanged, scanned_bytes
from skewless_spark.sources.input_splits import split_bytes
from skewless_spark.sources.worker_files import CODEC
from skewless_spark.stage.bypass import bypass_outcome
from skewless_spark.stage.combined_report import combined_report
from skewless_spark.stage.combining import KEPT, StateCounts, combined_outcome
from skewless_spark.stage.early_states import early_outcome, makes_early_states, state_partitions
from skewless_spark.stage.histogram import measure
from skewless_spark.stage.queue import drawn_queue, last_commit, routed_queue, unrouted_queue
from skewless_spark.stage.reduction import kinds_of, slot_of_key, staged_outcome, writes_in_workers
from skewless_spark.stage.routing import whole_keys
from skewless_spark.stage.state_counts import CountsRead
from skewless_spark.states.columns import JobColumns
from skewless_spark.states.committed_files import BACKLOG, EVALUATED, write_files, written
from skewless_spark.states.results import evaluates_in_stage, with_native_results
from skewless_spark.states.states_at_rest import states_at_rest

log = logging.getLogger(__name__)

#: The plan says how many tasks there are and what is broadcast. Adaptive execution would find nothing to change, and
#: would run each shuffle as a job of its own.
_PLANNED = {"spark.sql.adaptive.enabled": "false"}
#: Settings of Spark under which workers write files like Spark's own.
_FILES_OF_WORKERS = {
    "spark.sql.parquet.compression.codec": CODEC,
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.writeLegacyFormat": "false",
}


class StageQuery(NamedTuple):
    """What a stage is going to write; nothing has run yet.

    Attributes:
        documents: what it was built from: the job, the plan, and the commits of all stages before.
        frame: states, backlog and results.
        tally: counts the rows that are read, where the listing does not.
        counts: counts the rows of states that are made where rows are read.
    """

    documents: tuple[Document, ...]
    frame: DataFrame
    tally: Tally | None
    counts: StateCounts


def run_stage(spark: SparkSession, run: RunDirectory, stage: int, ahead: StageQuery | None = None) -> StageReport:
    """Run a stage, unless it is committed already.

    Args:
        spark: the session.
        run: the run directory; it holds the plan of this epoch, and the last stage's commit.
        stage: the number of the stage, from 0.
        ahead: its query, if that was built before; it is used if it was built from the same documents.

    Returns:
        The committed report: of this attempt, or of the attempt that committed first.

    Raises:
        LedgerError: rows were lost or counted twice; nothing is committed.
        FencedOutError: this attempt lost its lease, and its successor has not committed yet.
    """
    step = stage_step(stage)
    if run.commit_of(step):
        return run.report(stage)
    with ExitStack() as held:
        with timed("take the lease"):
            fence = held.enter_context(leased_step(run, step))
        # The previous holder of the lease may have committed the stage.
        return run.report(stage) if run.commit_of(step) else _run(spark, run, stage, fence, ahead)


def build_query(spark: SparkSession, run: RunDirectory, plan: RoutingPlan) -> StageQuery | None:
    """Build the query of a stage; None where workers write, into the folder of an attempt that has not begun yet.

    Args:
        spark: the session.
        run: the run directory; the stages before have committed.
        plan: the stage's plan, which need not have been written.
    """
    columns = JobColumns.of(run.job())
    return None if writes_in_workers(columns, plan) else _query(spark, run, columns, plan)


def _query(
    spark: SparkSession, run: RunDirectory, columns: JobColumns, plan: RoutingPlan, into: str | None = None
) -> StageQuery:
    tally, counts = None if columns.job.counted else Tally(), StateCounts()
    frame = outcome(spark, run, columns, plan, tally, counts, into)
    return StageQuery(_documents(run, plan), frame, tally, counts)


def _documents(run: RunDirectory, plan: RoutingPlan) -> tuple[Document, ...]:
    return run.job(), plan, *(run.committed(stage_step(stage)) for stage in range(plan.epoch))


def _still_right(ahead: StageQuery, spark: SparkSession, run: RunDirectory, plan: RoutingPlan) -> bool:
    """Whether a query that was built before is the one that would be built now.

    Raises:
        RunDirectoryError: a file that it reads is not the one that was committed any more.
    """
    if ahead.frame.sparkSession is not spark or ahead.documents != _documents(run, plan):
        return False
    last = last_commit(run, plan.epoch)
    for file in last.of_kind(BACKLOG) if last else ():
        run.verify(file)
    return True


def _run(
    spark: SparkSession, run: RunDirectory, stage: int, fence: Fence | None, ahead: StageQuery | None
) -> StageReport:
    started = time.monotonic()
    job, plan = run.job(), run.plan(stage)
    require_writer(spark, str(run), job.spec.output.file_format)  # the merge would find out after all the work
    columns, last = JobColumns.of(job), last_commit(run, stage)
    decided = plan.engine == "combine" and run.exists(f"decisions/{stage:04d}.json")
    choice = run.decision(stage).engine if decided else None
    partitions = state_partitions(columns, plan, last.count("backlog") if last else 0, choice)
    spark.conf.set("spark.sql.shuffle.partitions", partitions)
    admitted = job.admitted_units(plan.waves)
    require_unchanged(job, admitted)
    attempt = run.new_attempt(stage_step(stage), fence)
    seen = JobsSeen(spark)
    with _as_planned(spark, job, plan, last.of_kind(BACKLOG) if last else ()):
        kinds = kinds_of(columns, plan)
        into = _folder_of_workers(spark, attempt, columns, plan, kinds)
        if ahead is not None:
            with timed("check the query that was built ahead"):
                ahead = None if into or not _still_right(ahead, spark, run, plan) else ahead
        if ahead is None:
            with timed("build the query"):
                ahead = _query(spark, run, columns, plan, into)
        found, tally, counts = ahead.frame, ahead.tally, ahead.counts
        with timed(RUN_QUERY):
            if into:
                attempt.report([str(row.path) for row in found.collect()])
            elif len(kinds) == 1:
                # Rows of one kind need not be told apart one by one.
                found = found if kinds == [EVALUATED] and columns.native else found.drop("kind")
                write_files(found, attempt, f"kind={kinds[0]}")
            else:
                write_files(found, attempt, "", "kind")
    # Checked again after the rows were read: a file may have been rewritten while the wave was read.
    require_unchanged(job, admitted)

    def seconds() -> float:
        return time.monotonic() - started

    with timed("read the counts back"):
        read = CountsRead(run, columns)
        # A first ``combine`` with one row for each key names slot and heavy key: no keys are read, see its report.
        one_each = plan.engine == "combine" and not stage and (columns.makes_native or kinds == [EVALUATED])
        reader = None if one_each else read.take
        files = [file for kind in kinds for file in written(attempt, kind, f"kind={kind}", reader=reader)]
        if plan.engine == "combine":
            report = combined_report(spark, run, columns, plan, files, counts, read, seen, seconds)
        else:
            report = measure(spark, run, columns, plan, files, read, seconds)
        counted = tally.counts if tally else {}
        report = report.model_copy(update={**counted, "work": seen.work()})
    with timed("commit"):
        return commit_stage(run, attempt, report, files)


def _folder_of_workers(
    spark: SparkSession, attempt: Attempt, columns: JobColumns, plan: RoutingPlan, kinds: Sequence[str]
) -> str | None:
    """The folder that Python workers write the states of a stage into; None where Spark writes them."""
    folder = attempt.path(f"kind={kinds[0]}")
    if not writes_in_workers(columns, plan) or not workers_reach(spark, folder):
        return None
    return folder if all(spark.conf.get(name) == value for name, value in _FILES_OF_WORKERS.items()) else None


def commit_stage(
    run: RunDirectory, attempt: Attempt, report: StageReport, files: Sequence[CommittedFile]
) -> StageReport:
    """Commit an attempt at a stage if its rows balance.

    Args:
        run: the run directory.
        attempt: the attempt.
        report: the report of the attempt.
        files: states and backlog, written by this attempt or, in a shared stage, by others.

    Returns:
        The committed report: this one, or that of the attempt that committed first.

    Raises:
        LedgerError: rows were lost or counted twice; nothing is committed.
    """
    last = last_commit(run, report.stage)
    on_disk = sum(file.rows for file in files if file.kind == BACKLOG)
    require_kept(run.job(), report, last.count("backlog") if last else 0, on_disk)
    attempt.write(STAGE_REPORT, report)
    try:
        attempt.commit(files, _counts(report))
    except LostRaceError as err:
        log.warning("%s", err)
        return run.report(report.stage)
    return report


def outcome(
    spark: SparkSession,
    run: RunDirectory,
    columns: JobColumns,
    plan: RoutingPlan,
    tally: Tally | None = None,
    counts: StateCounts | None = None,
    into: str | None = None,
) -> DataFrame:
    """What a stage writes: states and backlog, distinguished by the column ``kind``; or results, and no such column.

    Nothing has run yet.

    Args:
        spark: the session.
        run: the run directory.
        columns: the job's columns.
        plan: the stage's plan.
        tally: counts the rows that are read.
        counts: counts the rows of states that are made where rows are read.
        into: see ``reduction.outcome_of_tasks``.
    """
    evaluated = evaluates_in_stage(columns, plan)
    if plan.engine == "combine":
        return _combined(spark, run, columns, plan, tally, counts or StateCounts())
    if makes_early_states(columns, plan):
        states = early_outcome(drawn_queue(spark, run, columns, plan, tally), columns, plan)
    elif plan.engine == "staged":
        queue = routed_queue(spark, run, columns, plan, tally)
        at_rest = None if evaluated else states_at_rest(run, columns, plan)
        states = staged_outcome(queue, columns, plan, at_rest, evaluated=evaluated, into=into)
    else:
        queue = unrouted_queue(spark, run, columns, plan, tally)
        states = bypass_outcome(queue, columns, plan, evaluated=evaluated)
    if columns.python or not evaluated:
        return states
    whole = whole_keys(plan, columns.routing_sql())
    return with_native_results(states.selectExpr("*", slot_of_key(columns, plan)), columns, whole, KEPT)


def _combined(
    spark: SparkSession,
    run: RunDirectory,
    columns: JobColumns,
    plan: RoutingPlan,
    tally: Tally | None,
    counts: StateCounts,
) -> DataFrame:
    # Native and Python states read the input separately: there is no exchange that they could share.
    native = unrouted_queue(spark, run, columns, plan, tally) if columns.makes_native else None
    python_tally = tally if native is None else None
    python = unrouted_queue(spark, run, columns, plan, python_tally) if columns.python else None
    return combined_outcome(native, python, columns, plan, counts)


@contextmanager
def _as_planned(spark: SparkSession, job: Job, plan: RoutingPlan, backlog: Sequence[CommittedFile]) -> Iterator[None]:
    """The settings of a stage's query. Engines that route no rows in stages read in even splits, some for each slot.

    Spark's own splits are meant for rows that are shuffled next: few, and padded for files that are slow to open.

    Args:
        spark: the session.
        job: the frozen job.
        plan: the stage's plan.
        backlog: the files that the last stage left over.
    """
    if plan.engine == "staged":
        with _settings(spark, _PLANNED):
            yield
        return
    wave = scanned_bytes(spark, job, job.admitted_units(plan.waves))
    sizes = [*wave, *(file.size_bytes for file in backlog)]
    settings = {
        "spark.sql.files.maxPartitionBytes": str(split_bytes(sizes, job.combine_splits, job.spec.routing.parallelism)),
        "spark.sql.files.openCostInBytes": "0",
        "spark.sql.files.minPartitionNum": "1",  # of more, Spark would take an even share of the bytes as the limit
    }
    with _settings(spark, settings | _PLANNED):
        yield


@contextmanager
def _settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Settings of the session for the time of the block."""
    # One by one: all settings together are a call to the JVM for each.
    before: dict[str, str | None] = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, given in before.items():
            if given is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, given)


def _counts(report: StageReport) -> dict[str, int]:
    return {
        "admitted": report.admitted_rows,
        "backlog_in": report.backlog_in_rows,
        "forwarded": report.forwarded_rows,
        "processed": report.processed_rows,
        "backlog": report.backlog_rows,
    }
