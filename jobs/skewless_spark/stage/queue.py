"""What is queued for a stage: the admitted wave, the backlog, and states that are forwarded with their keys."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from skewless.documents.commit import StepCommit
from skewless.routing.plan import RoutingPlan
from skewless.run.directory import RunDirectory, stage_step
from skewless_spark.aggregates.key_text import bounded
from skewless_spark.sources import ORIGIN, Tally, read_units
from skewless_spark.stage.routing import TASK, route
from skewless_spark.states.columns import JobColumns
from skewless_spark.states.committed_files import BACKLOG, PYTHON, read_files
from skewless_spark.states.python_reduction import ADMITTED, CARRIED, FORWARDED, STAYED

#: The origin of a carried state: before all rows.
_BEFORE_ALL = -1


def routed_queue(
    spark: SparkSession, run: RunDirectory, columns: JobColumns, plan: RoutingPlan, tally: Tally | None = None
) -> DataFrame:
    """Wave, backlog and carried states, routed.

    Returns:
        ``c*``, origin, arrival, task; with carried states also their columns, and the rows that they stand for.
    """
    queue = _rows(spark, run, columns, plan, tally)
    routed = route(queue, plan, columns.routing_key, ORIGIN)
    arrival = (
        F.when(F.col("last_task").isNull(), ADMITTED)
        .when(F.col("last_task") == F.col(TASK), STAYED)
        .otherwise(FORWARDED)
    )
    rows = routed.select(*columns.names, *columns.origins, arrival.cast("tinyint").alias("arrival"), TASK)
    carried = _carried(spark, run, columns, plan)
    return rows if carried is None else rows.unionByName(carried, allowMissingColumns=True)


def unrouted_queue(
    spark: SparkSession, run: RunDirectory, columns: JobColumns, plan: RoutingPlan, tally: Tally | None = None
) -> DataFrame:
    """Wave and backlog, not routed, for the engine ``combine``: ``c*``, origin, arrival, task.

    The task is the number of the input split: states are merged in its order.
    """
    queue = _rows(spark, run, columns, plan, tally)
    arrival = F.when(F.col("last_task").isNull(), ADMITTED).otherwise(STAYED)
    return queue.select(
        *columns.names, *columns.origins, arrival.cast("tinyint").alias("arrival"), F.spark_partition_id().alias(TASK)
    )


def last_commit(run: RunDirectory, epoch: int) -> StepCommit | None:
    """The commit of the stage before an epoch; None before the first."""
    return run.committed(stage_step(epoch - 1)) if epoch else None


def _rows(
    spark: SparkSession, run: RunDirectory, columns: JobColumns, plan: RoutingPlan, tally: Tally | None
) -> DataFrame:
    """Wave and backlog: ``c*``, origin, and ``last_task``, the task that left over a row of the backlog."""
    admitted = columns.job.admitted_units(plan.waves)
    located = plan.engine == "staged" or columns.reads_origin
    queue = read_units(spark, columns.job, admitted, columns.inputs, tally, located=located)
    keys = {
        number: bounded(F.col(number), columns.job.key_types[name], name)
        for number, name in zip(columns.keys, columns.job.spec.key, strict=True)
    }
    queue = queue.withColumns({**keys, "last_task": F.lit(None).cast("int")})
    left_over = last_commit(run, plan.epoch)
    if left_over and left_over.of_kind(BACKLOG):
        backlog = read_files(spark, run, left_over.of_kind(BACKLOG))
        backlog = backlog.select(*columns.names, *columns.origins, F.col(TASK).alias("last_task"))
        queue = queue.unionByName(_renumbered(spark, backlog, run.plan(plan.epoch - 1), plan))
    return queue


def _renumbered(spark: SparkSession, backlog: DataFrame, last: RoutingPlan, plan: RoutingPlan) -> DataFrame:
    """The last plan's task numbers translated to this plan's; -1 for a task that does not exist any more."""
    if last.tasks == plan.tasks:
        return backlog
    now = {task: number for number, task in enumerate(plan.tasks)}
    numbers = [now.get(task, -1) for task in last.tasks]
    # As an Arrow table it needs no Python worker.
    table = {"last_task": pa.array(range(len(numbers)), pa.int32()), "now": pa.array(numbers, pa.int32())}
    mapping = spark.createDataFrame(pa.table(table))
    joined = backlog.join(F.broadcast(mapping), "last_task")
    return joined.withColumn("last_task", F.col("now")).select(*backlog.columns)


def _carried(spark: SparkSession, run: RunDirectory, columns: JobColumns, plan: RoutingPlan) -> DataFrame | None:
    """The Python states of the last stage, routed by this plan."""
    before = last_commit(run, plan.epoch)
    if not columns.job.forwards_states or before is None or not before.of_kind(PYTHON):
        return None
    states = read_files(spark, run, before.of_kind(PYTHON)).drop(TASK)
    for name in columns.origins:
        states = states.withColumn(name, F.lit(_BEFORE_ALL).cast("bigint"))
    routed = route(states, plan, columns.routing_key, ORIGIN)
    names = [name for one in columns.python for name in columns.states(one)]
    return routed.select(
        *columns.keys, *columns.origins, F.lit(CARRIED).cast("tinyint").alias("arrival"), TASK, "total_rows", *names
    )
