"""Reduces the queue of a stage to native states, Python states, and the rows beyond the budget.

The rows cross the network once: the three outputs are branches of one union over one exchange, which Spark runs once.
Within a task, rows are processed in the order of their origin, whatever order the shuffle delivered them in. So the
same rows fit the budget and the same bytes are written each time.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Observation, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import DoubleType, IntegerType, LongType, StructField, StructType

from skewless.document import LARGEST_COUNT
from skewless.documents.stage_report import LONGEST_HEAD_KEY
from skewless.routing.plan import RoutingPlan
from skewless_spark.sources import read_units
from skewless_spark.stage.routing import TASK, slot
from skewless_spark.states.columns import JobColumns
from skewless_spark.states.committed_files import BACKLOG, NATIVE, PYTHON
from skewless_spark.states.python_calls import PythonCall
from skewless_spark.states.python_reduction import ADMITTED, CARRIED, FORWARDED, reduce_batches

#: ``monotonically_increasing_id`` counts the rows of a partition in its low 33 bits.
_POSITION_MASK = (1 << 33) - 1

#: The counts of the ledger, per task and key.
COUNTS = ("rows", "left_over", "admitted", "forwarded")

#: Columns of native states of the engine ``combine``: the slot of the key on the ring, null for a null key; and the
#: text of the key, if it is heavy.
SLOT, HEAVY = "slot", "heavy_key"


def staged_outcome(queue: DataFrame, columns: JobColumns, plan: RoutingPlan) -> DataFrame:
    """Send every row to its task. The result has states and backlog, distinguished by the column ``kind``."""
    return outcome_of_tasks(queue.repartitionById(len(plan.tasks), F.col(TASK)), columns, plan)


def outcome_of_tasks(queue: DataFrame, columns: JobColumns, plan: RoutingPlan) -> DataFrame:
    """States and backlog of rows that are in place: each partition has one task's rows, and all of them."""
    taken = _in_order(queue, columns, plan)
    rows = taken.where(F.col("arrival") != CARRIED) if columns.carries(queue) else taken
    # Carried states replace those of earlier stages, but must not take over the counts of those stages.
    if not columns.makes_native and plan.budget_rows is None and not columns.job.forwards_states:
        return _counted_python_states(taken, columns).withColumn("kind", F.lit(PYTHON))
    branches = [_native_states(rows, columns, plan.budget_rows).withColumn("kind", F.lit(NATIVE))]
    if columns.python:
        branches.append(_python_states(taken, columns).withColumn("kind", F.lit(PYTHON)))
    if plan.budget_rows is not None:
        left_over = rows.where(~F.col("kept")).select(TASK, *columns.names, *columns.origins)
        branches.append(left_over.withColumn("kind", F.lit(BACKLOG)))
    return _union(branches)


def kinds_of(columns: JobColumns, plan: RoutingPlan) -> list[str]:
    """The kinds of rows that the outcome of a stage may have."""
    alone = plan.engine == "combine" or (plan.budget_rows is None and not columns.job.forwards_states)
    native = [NATIVE] if columns.makes_native or not alone else []
    return [*native, *([PYTHON] if columns.python else []), *([] if plan.budget_rows is None else [BACKLOG])]


class StateCounts:
    """Rows that the states of the engine ``combine`` stand for, counted while they are written.

    Native and Python states are counted separately, since each of the two must have seen every row.
    """

    def __init__(self) -> None:
        self._observed: dict[str, Observation] = {}

    def counting(self, states: DataFrame, kind: str) -> DataFrame:
        """Count the rows of a frame of states with the columns ``rows`` and ``admitted``."""
        self._observed[kind] = Observation(f"skewless {kind}")
        sums = [F.sum(name).alias(name) for name in ("rows", "admitted")]
        return states.observe(self._observed[kind], *sums)

    def of(self, kind: str) -> tuple[int, int] | None:
        """All rows, and the rows that came with the wave; None if no such states were written."""
        observed = self._observed.get(kind)
        if observed is None:
            return None
        return int(observed.get.get("rows") or 0), int(observed.get.get("admitted") or 0)


def combined_outcome(
    native: DataFrame | None, python: DataFrame | None, columns: JobColumns, plan: RoutingPlan, counts: StateCounts
) -> DataFrame:
    """States made where rows are read. Spark itself combines native states key by key before they are written.

    Args:
        native: the rows for the native states; None if there are none.
        python: the rows for the Python states; None if there are none.
        columns: the job's columns.
        plan: the stage's plan.
        counts: told the rows of both.
    """
    nothing = {name: F.lit(0).cast("bigint") for name in ("left_over", "forwarded")}
    branches = []
    if native is not None:
        states = (
            native.withColumn("kept", F.lit(True))
            .groupBy(*columns.groups)
            .agg(
                F.count(F.lit(1)).alias("rows"),
                F.count(F.when(F.col("arrival") == ADMITTED, 1)).alias("admitted"),
                *_state_columns(columns, all_kept=True),
            )
        )
        # A key has one native state, combined from all splits, so it belongs to no split.
        states = counts.counting(states, NATIVE).withColumns({TASK: F.lit(0), "kind": F.lit(NATIVE), **nothing})
        states = states.withColumns(_named(columns, plan))
        branches.append(states)
    if python is not None:
        # Without a backlog, all rows came with the wave. States, not rows, are given the number of their split.
        rows = python.drop(TASK) if plan.epoch else python.drop(TASK, "arrival")
        seen = _counted_python_states(rows.withColumn("kept", F.lit(True)), columns, apart=False)
        seen = seen.withColumn(TASK, F.spark_partition_id())
        seen = counts.counting(seen, PYTHON).withColumn("kind", F.lit(PYTHON))
        branches.append(seen if native is None else seen.drop(*COUNTS))
    return _union(branches)


def _named(columns: JobColumns, plan: RoutingPlan) -> dict[str, Column]:
    """The columns ``SLOT`` and ``HEAVY`` of states that are one for each key.

    A key is heavy if it has at least one in ``head_limit`` of all listed rows: at most ``head_limit`` keys have.
    """
    key, limit = columns.routing_key, columns.job.spec.routing.head_limit
    least = -(-columns.job.admitted_rows(plan.waves) // limit) if limit else LARGEST_COUNT
    text = F.is_valid_utf8(key) & (F.length(key) <= LONGEST_HEAD_KEY) & (F.col("rows") >= least)
    at = F.expr(slot(columns.routing_sql(), plan.ring.ring_bits))
    return {SLOT: F.when(key.isNotNull(), at), HEAVY: F.when(text, key)}


def empty_states(spark: SparkSession, columns: JobColumns) -> DataFrame:
    """An empty frame with the columns of states, for the merge of an empty input."""
    none = read_units(spark, columns.job, (), columns.inputs)
    none = none.selectExpr("*", *columns.parted).select(
        "*", F.lit(0).cast("tinyint").alias("arrival"), F.lit(0).alias(TASK), F.lit(True).alias("kept")
    )
    states = _native_states(none, columns, None)
    return states.unionByName(_python_states(none, columns), allowMissingColumns=True) if columns.python else states


def _union(branches: Sequence[DataFrame]) -> DataFrame:
    union = branches[0]
    for branch in branches[1:]:
        union = union.unionByName(branch, allowMissingColumns=True)
    return union


def _in_order(queue: DataFrame, columns: JobColumns, plan: RoutingPlan) -> DataFrame:
    """The rows of each virtual task, which is one partition, sorted by origin; ``kept`` says if a row fits the budget.

    Without a budget the order matters within a key only. Then rows are sorted by key first, so that native states are
    made one after the other, without a hash map, into which a million sketches would not fit. Carried states come
    before all rows of any key.
    """
    carries = columns.carries(queue)
    if plan.engine == "bypass":
        return queue.where(_whole(F.spark_partition_id(), queue)).withColumn("kept", F.lit(True))
    if plan.budget_rows is None:
        order = (*columns.origins, *columns.keys) if carries else (*columns.groups, TASK, *columns.origins)
        in_order = queue.sortWithinPartitions(*order)
        return in_order.where(_whole(F.spark_partition_id(), queue)).withColumn("kept", F.lit(True))
    if carries:
        # Carried states come before all rows but do not count as rows: the window numbers the two separately.
        alike = Window.partitionBy(TASK, F.col("arrival") == CARRIED).orderBy(*columns.origins, *columns.keys)
        numbered = queue.withColumn("position", F.row_number().over(alike).cast("bigint") - 1)
        numbered = numbered.sortWithinPartitions(*columns.origins, *columns.keys)
    else:
        sorted_rows = queue.sortWithinPartitions(*columns.origins)
        position = F.monotonically_increasing_id().bitwiseAND(F.lit(_POSITION_MASK))
        numbered = sorted_rows.withColumn("position", position)
    kept = F.col("position") < plan.budget_rows
    if carries:
        kept = kept | (F.col("arrival") == CARRIED)
    return numbered.where(_whole(F.col("position"), queue)).withColumn("kept", kept).drop("position")


def _whole(number: Column, queue: DataFrame) -> Column:
    """A condition that is always true, decided by its first half, and that names every column.

    It keeps Spark from pruning different columns below the exchange in each branch, so that the exchange runs once for
    all branches. The number must be one that differs above and below the exchange: otherwise Spark would push the
    condition below the exchange, and prune columns above it.
    """
    return (number >= 0) | (F.hash(*queue.columns) == 0)


def _native_states(taken: DataFrame, columns: JobColumns, budget_rows: int | None) -> DataFrame:
    """Per task and key: the counts of the ledger, and the native states of the kept rows."""

    def counted(condition: Column) -> Column:
        return F.count(F.when(condition, 1))

    everything = budget_rows is None
    rows = F.count(F.lit(1)) if everything else counted(F.col("kept"))
    left_over = F.count(F.lit(None)) if everything else counted(~F.col("kept"))
    # Spark aggregates in the order of the sort, if the rows are sorted by key.
    return taken.groupBy(*columns.groups, TASK).agg(
        rows.alias("rows"),
        left_over.alias("left_over"),
        counted(F.col("arrival") == ADMITTED).alias("admitted"),
        counted(F.col("arrival") == FORWARDED).alias("forwarded"),
        *_state_columns(columns, all_kept=everything),
    )


def native_state_columns(
    rows: DataFrame, columns: JobColumns, group: Sequence[str], counts: Sequence[str]
) -> DataFrame:
    """The states of all native aggregates of rows that all count, by some columns, after counts in SQL."""
    return rows.groupBy(*group).agg(*map(F.expr, counts), *_state_columns(columns, all_kept=True))


def _state_columns(columns: JobColumns, *, all_kept: bool) -> list[Column]:
    """The states of all native aggregates, as aggregate expressions over rows with the column ``kept``."""
    return [
        state.alias(name)
        for one in columns.native
        for name, state in zip(
            columns.states(one),
            one.definition.update(columns.arguments(one, "kept", all_kept=all_kept), one.options),  # type: ignore[union-attr]
            strict=True,
        )
    ]


def _python_states(taken: DataFrame, columns: JobColumns, *, apart: bool = True) -> DataFrame:
    """Per key and, if there is one, task: the states of the Python aggregates, and the number of rows that they saw."""
    calls = columns.python_calls()
    arguments = [columns.argument(one).alias(call.argument) for one, call in zip(columns.python, calls, strict=True)]
    carried = ["total_rows", *(call.state for call in calls)] if columns.carries(taken) else []
    about = [name for name in (TASK, "arrival") if name in taken.columns]
    text = [] if columns.key_is_text else [columns.key.cast("binary").alias("route_key")]
    batches = taken.where("kept").select(*about, *text, *columns.groups, *arguments, *carried)
    reduce = reduce_batches(calls, columns.keys, apart=apart)
    return batches.mapInArrow(reduce, _python_schema(batches, columns.groups, calls))


def _counted_python_states(taken: DataFrame, columns: JobColumns, *, apart: bool = True) -> DataFrame:
    """Python states with the counts of the ledger, for a stage without native states and without a budget."""
    counts = {name: F.col(f"python_{name}") for name in ("rows", "admitted", "forwarded")}
    states = _python_states(taken, columns, apart=apart)
    return states.withColumns({**counts, "left_over": F.lit(0).cast("bigint")})


def _python_schema(batches: DataFrame, keys: Sequence[str], calls: Sequence[PythonCall]) -> StructType:
    kinds = {field.name: field.dataType for field in batches.schema}
    return StructType(
        [
            *([StructField(TASK, IntegerType())] if TASK in kinds else []),
            *(StructField(key, kinds[key]) for key in keys),
            StructField("python_rows", LongType()),
            StructField("python_admitted", LongType()),
            StructField("python_forwarded", LongType()),
            StructField("total_rows", LongType()),
            StructField("key_seconds", DoubleType()),
            StructField("task_seconds", DoubleType()),
            StructField("setup_seconds", DoubleType()),
            *(StructField(call.state, from_arrow_type(call.types.state)) for call in calls),
        ]
    )
