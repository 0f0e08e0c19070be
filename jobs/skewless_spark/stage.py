"""One stage: admit a wave, re-route the backlog, reduce within the budget, commit.

The rows cross the network once. Three things are made of them (native states, Python
states, the backlog) as the branches of one union over one exchange, which Spark runs once.
Within a task, rows are taken in the order of their origin, whatever order the shuffle
delivered them in: so the same rows fit the budget and the same bytes come out each time.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import IntegerType, LongType, StructField, StructType

from skewless.errors import LedgerError, LostRaceError
from skewless.job import Job
from skewless.ledger import LedgerLine, stage_problems
from skewless.routing_plan import RoutingPlan
from skewless.run_directory import STAGE_REPORT, RunDirectory, stage_step
from skewless.stage_report import StageReport
from skewless.step_commit import CommittedFile, StepCommit
from skewless_spark.aggregates.arrow_states import PythonCall, python_call, reduce_batches
from skewless_spark.columns import JobColumns
from skewless_spark.committed_files import BACKLOG, NATIVE, PYTHON, read_files, written
from skewless_spark.routing import TASK, route
from skewless_spark.sources import ORIGIN, Tally, read_units, require_unchanged
from skewless_spark.stage_histogram import measure

log = logging.getLogger(__name__)

#: How a row came into the stage: with the wave, or with the backlog of the last stage, there
#: either to the task that had it already or, forwarded, to another.
ADMITTED, STAYED, FORWARDED = 0, 1, 2

#: ``monotonically_increasing_id`` counts the rows of a partition in its low 33 bits.
_POSITION_MASK = (1 << 33) - 1


def run_stage(spark: SparkSession, run: RunDirectory, stage: int) -> StageReport:
    """Run a stage, or find that it has been run.

    Args:
        spark: the session.
        run: the run directory; it holds the plan of this epoch, and the last stage's commit.
        stage: its number.

    Returns:
        The report that counts: this attempt's, or that of the attempt that committed first.

    Raises:
        LedgerError: rows were lost or doubled; nothing is committed.
    """
    if run.commit_of(stage_step(stage)):
        return run.report(stage)
    started = time.monotonic()
    job, plan = run.job(), run.plan(stage)
    # The counts read back are small: as many partitions as the stage has tasks will do.
    spark.conf.set("spark.sql.shuffle.partitions", len(plan.tasks))
    admitted = job.admitted_units(plan.waves)
    require_unchanged(job, admitted)
    attempt = run.new_attempt(stage_step(stage))
    columns = JobColumns.of(job)
    tally = None if job.counted else Tally()
    queue = _queue(spark, run, columns, plan, tally)
    outcome(queue, columns, plan).write.partitionBy("kind").parquet(attempt.path(""), mode="append")
    # Once more after the rows were read: a rewrite while the wave was read is as bad as one before.
    require_unchanged(job, admitted)
    files = [file for kind in (NATIVE, PYTHON, BACKLOG) for file in written(attempt, kind, f"kind={kind}")]
    report = measure(spark, run, columns, plan, files, lambda: time.monotonic() - started)
    if tally:
        report = report.model_copy(update=tally.counts)
    _require_kept(run, job, report, files)
    attempt.write(STAGE_REPORT, report)
    try:
        attempt.commit(files, _counts(report))
    except LostRaceError as err:
        log.warning("%s", err)
        return run.report(stage)
    return report


def _queue(
    spark: SparkSession, run: RunDirectory, columns: JobColumns, plan: RoutingPlan, tally: Tally | None = None
) -> DataFrame:
    """Wave and backlog, routed: ``c*``, origin, arrival, task."""
    job = columns.job
    admitted = job.admitted_units(plan.waves)
    queue = read_units(spark, job, admitted, columns.inputs, tally).withColumn("last_task", F.lit(None).cast("int"))
    left_over = _last_commit(run, plan.epoch)
    if left_over and left_over.of_kind(BACKLOG):
        backlog = read_files(spark, run, left_over.of_kind(BACKLOG))
        backlog = backlog.select(*columns.names, *columns.origins, F.col(TASK).alias("last_task"))
        queue = queue.unionByName(_renumbered(spark, backlog, run.plan(plan.epoch - 1), plan))
    routed = route(queue, plan, columns.key, ORIGIN)
    arrival = (
        F.when(F.col("last_task").isNull(), ADMITTED)
        .when(F.col("last_task") == F.col(TASK), STAYED)
        .otherwise(FORWARDED)
    )
    return routed.select(*columns.names, *columns.origins, arrival.cast("tinyint").alias("arrival"), TASK)


def _last_commit(run: RunDirectory, epoch: int) -> StepCommit | None:
    return run.committed(stage_step(epoch - 1)) if epoch else None


def _renumbered(spark: SparkSession, backlog: DataFrame, last: RoutingPlan, plan: RoutingPlan) -> DataFrame:
    """The last plan's task numbers as this plan counts; -1 for a task that is no more."""
    if last.tasks == plan.tasks:
        return backlog
    now = {task: number for number, task in enumerate(plan.tasks)}
    numbers = [(before, now.get(task, -1)) for before, task in enumerate(last.tasks)]
    mapping = spark.createDataFrame(numbers, "last_task int, now int")
    joined = backlog.join(F.broadcast(mapping), "last_task")
    return joined.withColumn("last_task", F.col("now")).select(*backlog.columns)


def outcome(queue: DataFrame, columns: JobColumns, plan: RoutingPlan) -> DataFrame:
    """Send every row to its task: its states and the backlog, told apart by the column ``kind``."""
    taken = _in_order(queue, columns, plan)
    branches = [_native_states(taken, columns, plan.budget_rows).withColumn("kind", F.lit(NATIVE))]
    if columns.python:
        branches.append(_python_states(taken, columns).withColumn("kind", F.lit(PYTHON)))
    if plan.budget_rows is not None:
        left_over = taken.where(~F.col("kept")).select(TASK, *columns.names, *columns.origins)
        branches.append(left_over.withColumn("kind", F.lit(BACKLOG)))
    union = branches[0]
    for branch in branches[1:]:
        union = union.unionByName(branch, allowMissingColumns=True)
    return union


def _in_order(queue: DataFrame, columns: JobColumns, plan: RoutingPlan) -> DataFrame:
    """One partition per virtual task, its rows by origin, each with whether the budget reaches it."""
    tasks = queue.repartitionById(len(plan.tasks), F.col(TASK)).sortWithinPartitions(*columns.origins)
    position = F.monotonically_increasing_id().bitwiseAND(F.lit(_POSITION_MASK))
    numbered = tasks.withColumn("position", position)
    # Always true, and never evaluated beyond its first half; but it names every column, so that
    # no branch has columns pruned below the exchange and Spark runs that exchange once for all.
    whole = (F.col("position") >= 0) | (F.hash(*queue.columns) == 0)
    kept = F.lit(True) if plan.budget_rows is None else F.col("position") < plan.budget_rows
    return numbered.where(whole).withColumn("kept", kept).drop("position")


def _native_states(taken: DataFrame, columns: JobColumns, budget_rows: int | None) -> DataFrame:
    """Per task and key: the counts of the ledger, and the native states of the rows kept."""

    def counted(condition: Column) -> Column:
        return F.count(F.when(condition, 1))

    states = [
        state.alias(name)
        for one in columns.native
        for name, state in zip(
            columns.states(one),
            one.definition.update(columns.arguments(one, "kept", all_kept=budget_rows is None), one.options),  # type: ignore[union-attr]
            strict=True,
        )
    ]
    return taken.groupBy(TASK, *columns.keys).agg(
        counted(F.col("kept")).alias("rows"),
        counted(~F.col("kept")).alias("left_over"),
        counted(F.col("arrival") == ADMITTED).alias("admitted"),
        counted(F.col("arrival") == FORWARDED).alias("forwarded"),
        *states,
    )


def empty_states(spark: SparkSession, columns: JobColumns) -> DataFrame:
    """No states, with the columns that states have: what an empty input leaves to the merge."""
    none = read_units(spark, columns.job, (), columns.inputs)
    none = none.select("*", F.lit(0).cast("tinyint").alias("arrival"), F.lit(0).alias(TASK), F.lit(True).alias("kept"))
    states = _native_states(none, columns, None)
    return states.unionByName(_python_states(none, columns), allowMissingColumns=True) if columns.python else states


def _python_states(taken: DataFrame, columns: JobColumns) -> DataFrame:
    """Per task and key: the states of the Python aggregates, and how many rows they saw."""
    calls = [python_call(one, columns.states(one)[0]) for one in columns.python]
    arguments = [
        columns.argument(one).cast(from_arrow_type(call.definition.argument_type)).alias(call.argument)
        for one, call in zip(columns.python, calls, strict=True)
    ]
    batches = taken.where("kept").select(TASK, columns.key.cast("binary").alias("route_key"), *columns.keys, *arguments)
    return batches.mapInArrow(reduce_batches(calls, columns.keys), _python_schema(batches, columns.keys, calls))


def _python_schema(batches: DataFrame, keys: Sequence[str], calls: Sequence[PythonCall]) -> StructType:
    kinds = {field.name: field.dataType for field in batches.schema}
    return StructType(
        [
            StructField(TASK, IntegerType()),
            *(StructField(key, kinds[key]) for key in keys),
            StructField("python_rows", LongType()),
            *(StructField(call.state, from_arrow_type(call.definition.state_type)) for call in calls),
        ]
    )


def _counts(report: StageReport) -> dict[str, int]:
    return {
        "admitted": report.admitted_rows,
        "backlog_in": report.backlog_in_rows,
        "forwarded": report.forwarded_rows,
        "processed": report.processed_rows,
        "backlog": report.backlog_rows,
    }


def _require_kept(run: RunDirectory, job: Job, report: StageReport, files: Sequence[CommittedFile]) -> None:
    """Balance the stage before it commits: against the listing, the last commit, and its own files.

    Raises:
        LedgerError: names what does not add up.
    """
    last = _last_commit(run, report.stage)
    left_over = last.counts["backlog"] if last else 0
    lines = [LedgerLine.of(job, report)]
    problems = list(stage_problems(lines, left_over))
    on_disk = sum(file.rows for file in files if file.kind == BACKLOG)
    if on_disk != report.backlog_rows:
        problems.append(f"{on_disk:,} backlog rows are on disk of the {report.backlog_rows:,} counted")
    if problems:
        raise LedgerError(
            f"stage {report.stage}", "every row counted once", "; ".join(problems),
            "nothing was committed",
        )  # fmt: skip
