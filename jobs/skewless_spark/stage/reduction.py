"""Reduces the queue of a stage to native states, Python states, and the rows beyond the budget.

The rows cross the network once: states are branches of one union over one exchange, which Spark runs once. Rows beyond
the budget pass through one of these branches.
Within a task, rows are processed in the order of their origin, whatever order the shuffle delivered them in. So the
same rows fit the budget and the same bytes are written each time.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import LongType, StructField, StructType

from skewless.routing.plan import RoutingPlan
from skewless_spark.session.queries import map_in_batches
from skewless_spark.sources import read_units
from skewless_spark.sources.worker_files import REPORT, writing
from skewless_spark.stage.queue import Stage
from skewless_spark.stage.routing import TASK, slot, split_keys, whole_keys
from skewless_spark.states.columns import JobColumns
from skewless_spark.states.committed_files import BACKLOG, EVALUATED, NATIVE, PYTHON
from skewless_spark.states.python_reduction import (
    ADMITTED,
    FORWARDED,
    Leaves,
    counted_states,
    reduce_batches,
    states_schema,
)
from skewless_spark.states.results import evaluating_calls, with_native_results
from skewless_spark.states.states_at_rest import ROUTE_KEY, StatesAtRest, states_at_rest

#: ``monotonically_increasing_id`` counts the rows of a partition in its low 33 bits.
_POSITION_MASK = (1 << 33) - 1

#: The counts of the ledger, per task and key.
COUNTS = ("rows", "left_over", "admitted", "forwarded")

#: The slot of a key on the ring, beside its only state or its result; null for a null key.
SLOT = "slot"
#: What a row of results keeps of its state: the rest is the same for all, or can be told from these.
KEPT = (TASK, "rows", "admitted", SLOT)

#: Types whose values Spark groups by their bytes, floating point numbers beside; and those of them of a fixed size.
_FLOATING = ("float", "double")
_FIXED = re.compile(r"tinyint|smallint|int|bigint|boolean|date|timestamp|timestamp_ntz|float|double|decimal\(\d+,\d+\)")
_PLAIN = re.compile(f"string|binary|{_FIXED.pattern}")
#: Native states without a fixed size, texts and sketches, are made in one pass with the backlog only if at most this
#: part of the rows is expected to be left over. Each of these costs 3.5 us there, and a second reading of all rows
#: 0.25 us a row (a sketch of 1 million rows of 100 k keys, CPU).
FEW_LEFT_OVER = 0.05
#: Whether a row is the copy that goes into the backlog.
_COPY = "in_backlog"


def outcome_of_tasks(queue: DataFrame, stage: Stage, *, in_order: bool = True, into: str | None = None) -> DataFrame:
    """States and backlog of rows that are in place: each partition has one task's rows, and all of them.

    Args:
        queue: the rows.
        stage: what they are queued for. Where it evaluates, Python states become results if a key has one state.
        in_order: whether to reduce rows in the order of their origin; otherwise as they come, without a budget.
        into: a folder that workers write the states into, without a budget and native states. The result then has
            the paths of files.
    """
    columns, plan = stage.columns, stage.plan
    rows = _in_order(queue, columns, plan) if in_order else _all_kept(queue)
    if plan.budget_rows is not None and not columns.python and _may_leave(columns):
        both = _native_states_and_backlog(rows, columns)
        if _few_left_over(plan) or _fixed_states(both, columns):
            return both
    at_rest = None if stage.evaluates else states_at_rest(stage.run, columns, plan)
    has_native = _has_native_counts(columns, plan)
    # Rows without a key are drawn one by one, unless each key has one state.
    drawn = () if columns.job.forwards_states else (None,)
    split = frozenset([*split_keys(plan), *drawn]) if stage.evaluates else None
    if into is not None:
        return python_states(rows.where("kept"), columns, at_rest=at_rest, split=split, into=into)
    branches = []
    if has_native:
        branches.append(_native_states(rows, columns, plan.budget_rows).withColumn("kind", F.lit(NATIVE)))
    if columns.python:
        branches.append(_python_outcome(rows, columns, plan, at_rest, counts=not has_native, split=split))
    if plan.budget_rows is not None and not (columns.python and _may_leave(columns)):
        left_over = rows.where(~F.col("kept")).select(TASK, *columns.names, *columns.origins)
        branches.append(left_over.withColumn("kind", F.lit(BACKLOG)))
    return union_of(branches)


def with_results(outcome: DataFrame, stage: Stage) -> DataFrame:
    """What a stage makes, where it evaluates with the results of native states; Python states have become theirs."""
    columns, plan = stage.columns, stage.plan
    if columns.python or not stage.evaluates:
        return outcome
    whole = whole_keys(plan, columns.routing_sql())
    return with_native_results(outcome.selectExpr("*", slot_of_key(columns, plan)), columns, whole, KEPT)


def kinds_of(stage: Stage) -> list[str]:
    """The kinds of rows that the outcome of a stage may have."""
    columns, plan = stage.columns, stage.plan
    if stage.evaluates:
        return [EVALUATED]
    native = [NATIVE] if _has_native_counts(columns, plan) else []
    return [*native, *([PYTHON] if columns.python else []), *([] if plan.budget_rows is None else [BACKLOG])]


def _has_native_counts(columns: JobColumns, plan: RoutingPlan) -> bool:
    """Whether native states are written. Python states carry the counts if there are no native aggregates."""
    return columns.makes_native or (plan.budget_rows is not None and not _may_leave(columns))


def _may_leave(columns: JobColumns) -> bool:
    """Whether rows that are left over can pass through an aggregate or through Python without changing a bit."""
    return all(_PLAIN.fullmatch(kind) for kind in columns.types)


def _few_left_over(plan: RoutingPlan) -> bool:
    """Whether the plan expects at most a few rows to be left over; see ``FEW_LEFT_OVER``."""
    expected = [max(0, rows) for rows in plan.expected_rows]
    left_over = sum(max(0, rows - (plan.budget_rows or 0)) for rows in expected)
    return bool(expected) and left_over <= FEW_LEFT_OVER * sum(expected)


def _fixed_states(states: DataFrame, columns: JobColumns) -> bool:
    """Whether all native states have a fixed size: then Spark keeps a group in a few bytes of a hash map."""
    made = {name for one in columns.native for name in columns.states(one)}
    return all(_FIXED.fullmatch(field.dataType.simpleString()) for field in states.schema if field.name in made)


def _native_states_and_backlog(taken: DataFrame, columns: JobColumns) -> DataFrame:
    """Native states and backlog from one pass over the rows.

    A row that is left over goes on twice: to be counted with its key, and as a group of its own, by its origin, whose
    values are grouped by too. Spark's aggregate sorts and spills if there are too many groups.
    """
    further = [*columns.names[len(columns.keys) :], *columns.origins]
    # A group by a floating point number would make zero of minus zero.
    floating = [name for name, kind in zip(columns.names, columns.types, strict=True) if kind in _FLOATING]
    grouped = [name for name in further if name not in floating]
    copies = taken.selectExpr("*", f"explode(IF(kept, array(false), array(false, true))) AS {_COPY}")
    copies = copies.selectExpr("*", *(f"IF({_COPY}, {name}, NULL) AS left_{name}" for name in further))
    made = copies.groupBy(*columns.groups, TASK, _COPY, *(f"left_{name}" for name in grouped)).agg(
        *_counts(budgeted=True),
        *_state_columns(columns, all_kept=False),
        *(F.any_value(f"left_{name}").alias(f"left_{name}") for name in further if name in floating),
    )
    states = [*COUNTS, *(name for one in columns.native for name in columns.states(one))]
    return made.selectExpr(
        *columns.groups,
        TASK,
        *(f"IF({_COPY}, NULL, {name}) AS {name}" for name in states),
        *(f"left_{name} AS {name}" for name in further),
        f"IF({_COPY}, '{BACKLOG}', '{NATIVE}') AS kind",
    )


def slot_of_key(columns: JobColumns, plan: RoutingPlan) -> str:
    """In SQL, the column ``SLOT``: the slot of a key on the ring; null for a null key."""
    key = columns.routing_sql()
    return f"IF({key} IS NOT NULL, {slot(key, plan.ring.ring_bits)}, NULL) AS {SLOT}"


def empty_states(spark: SparkSession, columns: JobColumns) -> DataFrame:
    """An empty frame with the columns of states, for the merge of an empty input."""
    return states_of_rows(read_units(spark, columns.job, (), columns.inputs), columns)


def states_of_rows(rows: DataFrame, columns: JobColumns) -> DataFrame:
    """The states of rows that no stage routes: all rows of a key are in one partition, in the order of the input."""
    placed = rows.selectExpr("*", *columns.parted).select(
        "*", F.lit(0).cast("tinyint").alias("arrival"), F.lit(0).alias(TASK), F.lit(True).alias("kept")
    )
    states = _native_states(placed, columns, None)
    return states.unionByName(python_states(placed, columns), allowMissingColumns=True) if columns.python else states


def union_of(branches: Sequence[DataFrame]) -> DataFrame:
    """The rows of all branches; columns that one lacks are null there."""
    union = branches[0]
    for branch in branches[1:]:
        union = union.unionByName(branch, allowMissingColumns=True)
    return union


def _in_order(queue: DataFrame, columns: JobColumns, plan: RoutingPlan) -> DataFrame:
    """The rows of each virtual task, which is one partition, sorted by origin; ``kept`` says if a row fits the budget.

    Without a budget the order matters within a key only. Then rows for native states are sorted by key first, so that
    these are made one after the other, without a hash map, into which a million sketches would not fit.
    """
    if plan.budget_rows is None:
        # Python numbers keys as they come. All slots wait for the sort, which takes far longer by text than by number.
        by = [*columns.groups, TASK] if columns.makes_native else []
        return _all_kept(queue.sortWithinPartitions(*by, *columns.origins))
    position = F.monotonically_increasing_id().bitwiseAND(F.lit(_POSITION_MASK))
    numbered = queue.sortWithinPartitions(*columns.origins).withColumn("position", position)
    kept = F.col("position") < plan.budget_rows
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


def _native_states(taken: DataFrame, columns: JobColumns, budget_rows: int | None) -> DataFrame:
    """Per task and key: the counts of the ledger, and the native states of the kept rows."""
    everything = budget_rows is None
    # Spark aggregates in the order of the sort, if the rows are sorted by key.
    return taken.groupBy(*columns.groups, TASK).agg(
        *_counts(budgeted=not everything), *_state_columns(columns, all_kept=everything)
    )


def _counts(*, budgeted: bool) -> list[Column]:
    """The counts of the ledger, as aggregate expressions."""

    def counted(condition: Column) -> Column:
        return F.count(F.when(condition, 1))

    rows = counted(F.col("kept")) if budgeted else F.count(F.lit(1))
    left_over = counted(~F.col("kept")) if budgeted else F.count(F.lit(None))
    return [
        rows.alias("rows"),
        left_over.alias("left_over"),
        counted(F.col("arrival") == ADMITTED).alias("admitted"),
        counted(F.col("arrival") == FORWARDED).alias("forwarded"),
    ]


def native_state_columns(
    rows: DataFrame, columns: JobColumns, group: Sequence[str], counts: Sequence[str]
) -> DataFrame:
    """The states of all native aggregates of rows that all count, by some columns, after counts in SQL."""
    return rows.groupBy(*group).agg(*map(F.expr, counts), *_state_columns(columns, all_kept=True))


def _state_columns(columns: JobColumns, *, all_kept: bool) -> list[Column]:
    """The states of all native aggregates, as aggregate expressions over rows with the column ``kept``."""
    if all_kept:
        return [state for one in columns.native for state in columns.updates(one)]
    return [
        state.alias(name)
        for one in columns.native
        for name, state in zip(
            columns.states(one),
            one.definition.update(columns.arguments(one, "kept"), one.options),  # type: ignore[union-attr]
            strict=True,
        )
    ]


def _python_outcome(
    taken: DataFrame,
    columns: JobColumns,
    plan: RoutingPlan,
    at_rest: StatesAtRest | None,
    *,
    counts: bool,
    split: frozenset[str | None] | None,
) -> DataFrame:
    """Python states, and the backlog if there is a budget, from one pass over the rows.

    Args:
        taken: the rows, with ``kept``.
        columns: of the job.
        plan: the stage's plan.
        at_rest: where tasks find the states of their keys.
        counts: whether the states carry the counts of the ledger.
        split: see ``reduce_batches``; None with a budget.
    """
    if plan.budget_rows is None or not _may_leave(columns):
        kept = taken.where("kept")
        if counts:
            states = counted_python_states(kept, columns, at_rest=at_rest, split=split)
        else:
            states = python_states(kept, columns, at_rest=at_rest)
        return states.withColumn("kind", F.lit(PYTHON))
    found = python_states(taken, columns, at_rest=at_rest, leaves="counted" if counts else "uncounted")
    in_backlog = F.col(columns.origins[0]).isNotNull()
    if counts:
        left_over = F.when(~in_backlog, F.coalesce("left_over", F.lit(0)))
        found = found.withColumns({**_python_counts(), "left_over": left_over})
    return found.withColumn("kind", F.when(in_backlog, BACKLOG).otherwise(PYTHON))


def python_states(
    taken: DataFrame,
    columns: JobColumns,
    *,
    apart: bool = True,
    at_rest: StatesAtRest | None = None,
    split: frozenset[str | None] | None = None,
    leaves: Leaves | None = None,
    into: str | None = None,
) -> DataFrame:
    """Per key and, if there is one, task: the states of the Python aggregates, and the number of rows that they saw.

    Args:
        taken: the rows; all are kept, unless ``leaves``.
        columns: of the job.
        apart: whether to time heavy keys apart.
        at_rest: where tasks find the states of their keys.
        split: if given, all keys but those and null have results in place of states, see ``reduce_batches``.
        leaves: what to do with rows that are not kept, see ``reduce_batches``.
        into: a folder that workers write the states into, with the counts of the ledger. The frame then has the paths
            of files. Spark would take the states back from Python, and start a process for each file and each folder
            that it makes on a disk (``chmod``): some 30 ms of a core for each task.
    """
    calls = columns.python_calls() if split is None else evaluating_calls(columns)
    arguments = [columns.argument(one).alias(call.argument) for one, call in zip(columns.python, calls, strict=True)]
    about = [name for name in (TASK, "arrival") if name in taken.columns]
    text = [] if columns.key_is_text else [columns.key.cast("binary").alias(ROUTE_KEY)]
    further = [*columns.names[len(columns.keys) :], *columns.origins] if leaves else []
    # Only rows that are left over take all of their values with them.
    left = [F.when(~F.col("kept"), F.col(name)).alias(name) for name in further]
    kept = ["kept"] if leaves else []
    batches = taken.select(*about, *text, *columns.groups, *arguments, *kept, *left)
    reduce = reduce_batches(
        calls, columns.keys, apart=apart, at_rest=at_rest, split=split, leaves=leaves, further=further
    )
    made = states_schema(calls, columns.keys, batches.columns, at_rest, split, leaves)
    types = {field.name: field.dataType for field in batches.schema}
    found = [StructField(name, from_arrow_type(kind) if kind else types[name]) for name, kind in made.items()]
    schema = StructType([*found, *(StructField(name, types[name]) for name in further)])
    if into is None:
        return map_in_batches(batches, reduce, schema)
    note = StructType([*schema.fields, *(StructField(name, LongType()) for name in COUNTS)]).json()
    return map_in_batches(batches, counted_states(reduce, COUNTS, writing(into, None, note)), REPORT)


def _python_counts() -> dict[str, Column]:
    return {name: F.col(f"python_{name}") for name in ("rows", "admitted", "forwarded")}


def counted_python_states(
    taken: DataFrame,
    columns: JobColumns,
    *,
    apart: bool = True,
    at_rest: StatesAtRest | None = None,
    split: frozenset[str | None] | None = None,
) -> DataFrame:
    """Python states with the counts of the ledger, for a stage without native states and without a budget."""
    states = python_states(taken, columns, apart=apart, at_rest=at_rest, split=split)
    return states.withColumns({**_python_counts(), "left_over": F.lit(0).cast("bigint")})
