"""The kinds of states that a job may have, a module each, and what a task makes of its rows with them.

The rows cross the network once: states and rows left over are branches of one union over one exchange, which Spark runs
once.
Within a task, rows are processed in the order of their origin, whatever order the shuffle delivered them in. So the
same rows fit the budget and the same bytes are written each time.
"""

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from skewless_spark.branches.native import Native
from skewless_spark.branches.python import Python
from skewless_spark.session.versions import numbers_of
from skewless_spark.sources.unit_reading import read_units
from skewless_spark.stage.routes import TASK, Stage
from skewless_spark.states.committed_files import BACKLOG, EVALUATED
from skewless_spark.states.job_columns import HASH, JobColumns, summed_hash

#: The place of a part, by which its states are ordered; of merged states, the place of the oldest part.
PLACE = "place"
Branch = Native | Python


def branches_of(columns: JobColumns, *, counted: bool = False) -> list[Branch]:
    """One or two, of which the first has the counts of the ledger; ``counted`` has native states for these alone."""
    native = [Native(columns)] if counted or columns.native or not columns.python else []
    return [*native, *([Python(columns)] if columns.python else [])]


def union_of(parts: list[DataFrame]) -> DataFrame:
    """The rows of all; columns that one lacks are null there."""
    return reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), parts)


def merge_in_order(in_order: DataFrame, columns: JobColumns, also: Sequence[str] = ()) -> DataFrame:
    """One row per key, or key in a part: its rows, its merged native states, and its Python states as a list.

    The states of stages and tasks come with those of a key side by side, in their order; columns ``also`` follow
    from these.
    """
    rows = F.coalesce(F.sum("rows"), F.lit(0)).alias("rows")
    return in_order.groupBy(*columns.groups, *also).agg(
        rows, F.expr(summed_hash(HASH)), *(state for one in branches_of(columns) for state in one.merges())
    )


def merges_kept(states: DataFrame, columns: JobColumns, place: str | None = PLACE) -> list[Column]:
    """As aggregate expressions: rows and merged states of a key, over states that are kept."""
    merges = [state for one in branches_of(columns) for state in one.merges_kept(states, place)]
    return [F.sum("rows").alias("rows"), F.expr(summed_hash(HASH)), *merges]


def evaluate(states: DataFrame, columns: JobColumns, *, told: bool = False) -> DataFrame:
    """Rows and numbered results of merged states; with the states of sketches too, if they are to be told."""
    branches, sketches = branches_of(columns), columns.sketches if told else []
    selected = states.select(
        *columns.result_keys, "rows", HASH, *sketches, *(column for one in branches for column in one.to_evaluate())
    )
    return reduce(lambda results, branch: branch.evaluated(results), branches, selected).select("*", *columns.counts)


#: ``monotonically_increasing_id`` counts the rows of a partition in its low 33 bits.
_POSITION_MASK = (1 << 33) - 1


def outcome_of_tasks(queue: DataFrame, stage: Stage, *, in_order: bool = True, placed: int = 0) -> DataFrame:
    """States and backlog of rows that are in place: each partition has one task's rows, and all of them.

    Args:
        stage: what they are queued for. Where it evaluates, states become results if a key has one state.
        in_order: whether to reduce rows in the order of their origin; otherwise as they come, without a budget.
        placed: in how many partitions ``place_by`` has placed the rows by their tasks; 0 if it has not.
    """
    columns, budget = stage.columns, stage.plan.budget_rows
    rows = _in_order(queue, columns, budget) if in_order else _all_kept(queue)
    branches = _branches(stage)
    parts = [branch.states(rows, stage, counts=branch is branches[0], placed=placed) for branch in branches]
    if budget is not None:
        left_over = rows.where(~F.col("kept")).select(TASK, *columns.names, *columns.origins)
        parts.append(numbers_of(left_over, placed, TASK).withColumn("kind", F.lit(BACKLOG)))
    return branches[-1].with_results(parts[0], stage) if stage.evaluates else union_of(parts)


def kinds_of(stage: Stage) -> list[str]:
    """The kinds of rows that the outcome of a stage may have."""
    left_over = [] if stage.plan.budget_rows is None else [BACKLOG]
    return [EVALUATED] if stage.evaluates else [*(one.kind for one in _branches(stage)), *left_over]


def _branches(stage: Stage) -> list[Branch]:
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
    # Rows that a query made of one row may share a place: what they hold then says which ones are left over.
    of_query = columns.job.spec.map is not None and columns.job.spec.map.sql is not None
    ties = [name for name, kind in queue.select(columns.names).dtypes if "map<" not in kind] if of_query else []
    numbered = queue.sortWithinPartitions(*columns.origins, *ties).withColumn("position", position)
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
    # A map has no hash, nor has what holds one.
    named = (F.col(name).cast("string") if "map<" in kind else F.col(name) for name, kind in queue.dtypes)
    return (number >= 0) | (F.hash(*named) == 0)
