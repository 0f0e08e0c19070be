"""Reduces the queue of a stage to native states, Python states, and the rows beyond the budget.

The rows cross the network once: states and rows left over are branches of one union over one exchange, which Spark runs
once.
Within a task, rows are processed in the order of their origin, whatever order the shuffle delivered them in. So the
same rows fit the budget and the same bytes are written each time.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from skewless_spark.branches import Branch, branches_of, union_of
from skewless_spark.sources.unit_reading import read_units
from skewless_spark.stage.queue import Stage
from skewless_spark.stage.routes import TASK
from skewless_spark.states.committed_files import BACKLOG, EVALUATED
from skewless_spark.states.job_columns import JobColumns

#: ``monotonically_increasing_id`` counts the rows of a partition in its low 33 bits.
_POSITION_MASK = (1 << 33) - 1


def outcome_of_tasks(queue: DataFrame, stage: Stage, *, in_order: bool = True) -> DataFrame:
    """States and backlog of rows that are in place: each partition has one task's rows, and all of them.

    Args:
        stage: what they are queued for. Where it evaluates, states become results if a key has one state.
        in_order: whether to reduce rows in the order of their origin; otherwise as they come, without a budget.
    """
    columns, budget = stage.columns, stage.plan.budget_rows
    rows = _in_order(queue, columns, budget) if in_order else _all_kept(queue)
    branches = _branches(stage)
    parts = [branch.states(rows, stage, counts=branch is branches[0]) for branch in branches]
    if budget is not None:
        left_over = rows.where(~F.col("kept")).select(TASK, *columns.names, *columns.origins)
        parts.append(left_over.withColumn("kind", F.lit(BACKLOG)))
    return branches[-1].with_results(parts[0], stage) if stage.evaluates else union_of(parts)


def kinds_of(stage: Stage) -> list[str]:
    """The kinds of rows that the outcome of a stage may have."""
    left_over = [] if stage.plan.budget_rows is None else [BACKLOG]
    return [EVALUATED] if stage.evaluates else [*(one.kind for one in _branches(stage)), *left_over]


def _branches(stage: Stage) -> list[Branch]:
    """Those of the job. Where rows may be left over, native states count them."""
    return branches_of(stage.columns, counted=stage.plan.budget_rows is not None)


def empty_states(spark: SparkSession, columns: JobColumns) -> DataFrame:
    """An empty frame with the columns of states, for the merge of an empty input."""
    return states_of_rows(read_units(spark, columns.job, (), columns.inputs), columns)


def states_of_rows(rows: DataFrame, columns: JobColumns) -> DataFrame:
    """The states of rows that no stage routes: all rows of a key are in one partition, in the order of the input."""
    placed = rows.selectExpr("*", *columns.parted).select(
        "*", F.lit(0).cast("tinyint").alias("arrival"), F.lit(0).alias(TASK), F.lit(True).alias("kept")
    )
    return union_of([one.states(placed, None, counts=False) for one in branches_of(columns, counted=True)])


def _in_order(queue: DataFrame, columns: JobColumns, budget: int | None) -> DataFrame:
    """The rows of each virtual task, which is one partition, sorted by origin; ``kept`` says if a row fits the budget.

    Without a budget the order matters within a key only, and rows are sorted first by what suits their states.
    """
    if budget is None:
        return _all_kept(queue.sortWithinPartitions(*branches_of(columns)[0].order, *columns.origins))
    position = F.monotonically_increasing_id().bitwiseAND(F.lit(_POSITION_MASK))
    numbered = queue.sortWithinPartitions(*columns.origins).withColumn("position", position)
    kept = F.col("position") < budget
    return numbered.where(_whole(F.col("position"), queue)).withColumn("kept", kept).drop("position")


def _all_kept(rows: DataFrame) -> DataFrame:
    return rows.where(_whole(F.spark_partition_id(), rows)).withColumn("kept", F.lit(True))


def _whole(number: Column, queue: DataFrame) -> Column:
    """A condition that is always true, decided by its first half, and that names every column.

    It keeps Spark from pruning different columns below the exchange in each branch, so that the exchange runs once for
    all branches. The number must be one that differs above and below the exchange: otherwise Spark would push the
    condition below the exchange, and prune columns above it.
    """
    return (number >= 0) | (F.hash(*queue.columns) == 0)
