"""One stage: admit a wave, re-route the backlog, reduce within the budget, commit."""

import time
from collections.abc import Sequence
from functools import partial

from pyspark.sql import SparkSession

from skewless.documents.commit import CommittedFile
from skewless.documents.ledger import require_kept
from skewless.documents.stage_report import StageReport
from skewless.run.directory import STAGE_REPORT, Attempt, Fence, RunDirectory, stage_step
from skewless.run.step_times import timed
from skewless_spark.branches import PLACE, branches_of, kinds_of
from skewless_spark.engines import ENGINES
from skewless_spark.session.session import require_writer, under_settings
from skewless_spark.session.step_lease import once
from skewless_spark.session.step_measures import RUN_QUERY, JobsSeen
from skewless_spark.sources.identity import require_unchanged
from skewless_spark.sources.unit_reading import Tally
from skewless_spark.stage.routes import Stage
from skewless_spark.stage.state_counts import CountsRead
from skewless_spark.states.committed_files import BACKLOG, NATIVE, OF_PART, write_files, written
from skewless_spark.states.job_columns import PART, JobColumns

#: The plan says how many tasks there are and what is broadcast. Adaptive execution would find nothing to change, and
#: would run each shuffle as a job of its own.
_PLANNED = {"spark.sql.adaptive.enabled": "false"}
#: How large the rows of a lookup are that are joined is known only as they are read: exchanges begin with as many parts
#: as Spark's own, and small ones are joined.
_JOINED = {"spark.sql.adaptive.enabled": "true", "spark.sql.adaptive.coalescePartitions.initialPartitionNum": "200"}
#: Rows are sorted by their folders already.
_SORTED = {"spark.sql.maxConcurrentOutputFileWriters": "0"}


def run_stage(spark: SparkSession, run: RunDirectory, stage: int) -> StageReport:
    """Run a stage, unless it is committed already.

    Returns:
        The committed report: of this attempt, or of the attempt that committed first.
    """
    step = stage_step(stage)
    return once(run, step, lambda: run.report(stage) if run.commit_of(step) else None, partial(_run, spark, run, stage))


def _run(spark: SparkSession, run: RunDirectory, number: int, fence: Fence | None) -> StageReport:
    started = time.monotonic()
    plan, columns = run.plan(number), JobColumns.of(run.job())
    engine, job = ENGINES[plan.engine], columns.job
    in_loop = engine.merges and job.spec.map is not None and branches_of(columns)[0].kind == NATIVE
    stage = Stage(spark, run, columns, plan, None if job.counted else Tally(counts_given=not in_loop))
    require_writer(spark, str(run), job.spec.output.file_format)  # the merge would find out after all the work
    spark.conf.set("spark.sql.shuffle.partitions", engine.partitions(stage))
    admitted = job.admitted_units(plan.waves)
    require_unchanged(job, admitted)
    attempt = run.new_attempt(stage_step(number), fence)
    seen, kinds = JobsSeen(spark), kinds_of(stage)
    parted_by = OF_PART if engine.in_parts(stage, kinds) else None
    planned = (_JOINED if job.joined else _PLANNED) | (_SORTED if parted_by else {})
    with under_settings(spark, engine.settings(stage, stage.backlog) | planned):
        with timed("build the query"):
            outcome = engine.outcome(stage)
            if parted_by:
                places = ", ".join(f"{part.place}L" for part in columns.window.parts)
                outcome = outcome.selectExpr("*", f"array({places})[{PART}] AS {PLACE}", f"{PART} AS {parted_by}")
                outcome = outcome.sortWithinPartitions(parted_by, *columns.keys)
        with timed(RUN_QUERY):
            if len(kinds) == 1:  # rows of one kind need not be told apart one by one
                write_files(outcome.drop("kind"), attempt, f"kind={kinds[0]}", parted_by)
            else:
                write_files(outcome, attempt, "", "kind")
    # Checked again after the rows were read: a file may have been rewritten while the wave was read.
    require_unchanged(job, admitted)
    with timed("read the counts back"):
        read = CountsRead(run, columns)
        reader = engine.reader(stage, read)
        files = [file for kind in kinds for file in written(attempt, kind, f"kind={kind}", reader=reader)]
        report = engine.report(stage, files, read, seen)
        tallied = {"given_rows": report.admitted_rows, **stage.tally.counts} if stage.tally else {}
        seconds = {"stage_seconds": round(time.monotonic() - started, 3)}
        report = report.model_copy(update={**tallied, **seconds, "work": seen.work(), "slots": seen.slots})
    with timed("commit"):
        return commit_stage(stage, attempt, report, files)


def commit_stage(stage: Stage, attempt: Attempt, report: StageReport, files: Sequence[CommittedFile]) -> StageReport:
    """Commit an attempt at a stage if its rows balance.

    Args:
        files: states and backlog, written by this attempt or, in a shared stage, by others.
    """
    on_disk = sum(file.rows for file in files if file.kind == BACKLOG)
    require_kept(stage.columns.job, report, stage.backlog_rows, on_disk)
    attempt.write(STAGE_REPORT, report)
    attempt.commit(files, _counts(report))
    return report


def _counts(report: StageReport) -> dict[str, int]:
    return {
        "admitted": report.admitted_rows,
        "backlog_in": report.backlog_in_rows,
        "forwarded": report.forwarded_rows,
        "processed": report.processed_rows,
        "backlog": report.backlog_rows,
    }
