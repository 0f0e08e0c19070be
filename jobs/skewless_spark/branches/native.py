"""Native aggregates: states are typed columns, made, merged and evaluated by Spark itself."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from skewless.routing.plan import RoutingPlan
from skewless_spark.aggregates.binding import BoundAggregate
from skewless_spark.aggregates.definition import NativeAggregate
from skewless_spark.stage.queue import Stage
from skewless_spark.stage.routes import SLOT, TASK, slot, whole_keys
from skewless_spark.stage.state_counts import COUNTS
from skewless_spark.states.committed_files import BACKLOG, NATIVE
from skewless_spark.states.job_columns import WHOLE, JobColumns
from skewless_spark.states.python_reduction import ADMITTED, FORWARDED

#: What a row of results keeps of its state: the rest is the same for all, or can be told from these.
KEPT = (TASK, "rows", "admitted", SLOT)
_FLOATING = ("float", "double")
#: Types of a fixed size.
FIXED = re.compile(r"tinyint|smallint|int|bigint|boolean|date|timestamp|timestamp_ntz|float|double|decimal\(\d+,\d+\)")
#: States without a fixed size, texts and sketches, are made in one pass with the backlog only if at most this
#: part of the rows is expected to be left over. Each of these costs 3.5 us there, and a second reading of all rows
#: 0.25 us a row (a sketch of 1 million rows of 100 k keys, CPU).
FEW_LEFT_OVER = 0.05
#: The counts of the ledger in SQL, of rows that are all kept and of others.
_ALL_COUNTED = {
    "rows": "count(1)",
    "left_over": "count(NULL)",
    "admitted": f"count(IF(arrival = {ADMITTED}, 1, NULL))",
    "forwarded": f"count(IF(arrival = {FORWARDED}, 1, NULL))",
}
_COUNTED = _ALL_COUNTED | {"rows": "count(IF(kept, 1, NULL))", "left_over": "count(IF(kept, NULL, 1))"}
#: Whether a row is the copy that goes into the backlog.
_COPY = "in_backlog"


class Native:
    """All native aggregates of a job. Without any it has states too: counts of the ledger."""

    kind = NATIVE

    def __init__(self, columns: JobColumns) -> None:
        self.columns = columns
        #: Whether its states may be combined in any order, and are never larger than a row or two.
        self.combines_exactly = all(one.definition.combines_exactly(one.spark_types) for one in columns.native)
        #: What the rows of a task are sorted by, before their origin: so states are made one by one, without a hash
        #: map, into which a million sketches would not fit.
        self.order = [*columns.groups, TASK]

    @property
    def names(self) -> list[str]:
        """The columns of all states."""
        return [name for one in self.columns.native for name in self.columns.states(one)]

    def made(
        self, rows: DataFrame, by: Sequence[str], counts: Sequence[str] = COUNTS, *also: Column, all_kept: bool = True
    ) -> DataFrame:
        """The states of rows by some columns, after their counts, and before what else is aggregated.

        Args:
            rows: with the column ``kept``, unless all are.
            by: the columns; Spark aggregates in the order of a sort by these.
        """
        columns, sql = self.columns, _ALL_COUNTED if all_kept else _COUNTED
        made = (
            columns.updates
            if all_kept
            else lambda one: one.definition.update(columns.arguments(one, "kept"), one.options)
        )
        updates = self._by_state(made)
        return rows.groupBy(*by).agg(*(F.expr(f"{sql[name]} AS {name}") for name in counts), *updates, *also)

    def states(self, rows: DataFrame, stage: Stage | None, *, counts: bool) -> DataFrame:
        """States of the rows of a task that are ``kept``, with the counts of the ledger; without a stage all are."""
        del counts
        made = self.made(rows, self.order, all_kept=stage is None or stage.plan.budget_rows is None)
        return made.withColumn("kind", F.lit(NATIVE))

    def states_and_backlog(self, rows: DataFrame, stage: Stage, *, counts: bool) -> DataFrame | None:
        """The same, with the rows that are left over, from one pass; None if that would cost more than two.

        A row that is left over goes on twice: to be counted with its key, and as a group of its own, by its origin,
        whose values are grouped by too. Spark's aggregate sorts and spills if there are too many groups.
        """
        del counts
        columns = self.columns
        further = [*columns.names[len(columns.keys) :], *columns.origins]
        # A group by a floating point number would make zero of minus zero.
        floating = [name for name, kind in zip(columns.names, columns.types, strict=True) if kind in _FLOATING]
        grouped = [name for name in further if name not in floating]
        copies = rows.selectExpr("*", f"explode(IF(kept, array(false), array(false, true))) AS {_COPY}")
        copies = copies.selectExpr("*", *(f"IF({_COPY}, {name}, NULL) AS left_{name}" for name in further))
        values = [F.any_value(f"left_{name}").alias(f"left_{name}") for name in further if name in floating]
        group = [*columns.groups, TASK, _COPY, *(f"left_{name}" for name in grouped)]
        made = self.made(copies, group, COUNTS, *values, all_kept=False)
        both = made.selectExpr(
            *columns.groups,
            TASK,
            *(f"IF({_COPY}, NULL, {name}) AS {name}" for name in (*COUNTS, *self.names)),
            *(f"left_{name} AS {name}" for name in further),
            f"IF({_COPY}, '{BACKLOG}', '{NATIVE}') AS kind",
        )
        if _few_left_over(stage.plan):
            return both
        # Of a fixed size: then Spark keeps a group in a few bytes of a hash map.
        kinds = (field.dataType.simpleString() for field in both.schema if field.name in self.names)
        return both if all(map(FIXED.fullmatch, kinds)) else None

    def _by_state(self, of: Callable[[BoundAggregate[NativeAggregate]], Sequence[Column]]) -> list[Column]:
        columns = self.columns
        each = ((columns.states(one), of(one)) for one in columns.native)
        return [column.alias(name) for names, found in each for name, column in zip(names, found, strict=True)]

    def with_results(self, outcome: DataFrame, stage: Stage) -> DataFrame:
        """What a stage that evaluates has made, with the results of whole keys."""
        states = outcome.selectExpr("*", slot_of_key(self.columns, stage.plan))
        return self.evaluated_in_stage(states, whole_keys(stage.plan, self.columns.routing_sql()))

    def evaluated_in_stage(self, states: DataFrame, whole: str | None, *also: str) -> DataFrame:
        """Results in place of states, see ``WHOLE``.

        Args:
            states: with the columns ``KEPT``.
            whole: which keys have one state, a condition in SQL; None if all have.
        """
        kept = [*(F.col(name) for name in (*self.columns.keys, *KEPT, *also)), *self.columns.counts]
        if whole is None:
            return states.select(*kept, F.lit(True).alias(WHOLE), *self.to_evaluate())
        is_whole = F.expr(whole)
        of_parts = [F.when(~is_whole, F.col(name)).alias(name) for name in self.names]
        of_keys = [F.when(is_whole, self._result(one)).alias(name) for name, one in self._named()]
        return states.select(*kept, is_whole.alias(WHOLE), *of_parts, *of_keys)

    def _named(self) -> list[tuple[str, BoundAggregate[NativeAggregate]]]:
        return [(self.columns.result(one.name), one) for one in self.columns.native]

    def _result(self, one: BoundAggregate[NativeAggregate]) -> Column:
        return one.definition.evaluate([F.col(name) for name in self.columns.states(one)], one.options, one.spark_type)

    def to_evaluate(self) -> list[Column]:
        """The results, from merged states."""
        return [self._result(one).alias(name) for name, one in self._named()]

    def evaluated(self, selected: DataFrame) -> DataFrame:
        """What ``to_evaluate`` has selected: there are the results."""
        return selected

    def merges(self) -> list[Column]:
        """The merged states of a key, as aggregate expressions over those of stages and tasks, in their order."""
        return self._by_state(lambda one: one.definition.merge(self.columns.states(one), one.options, one.spark_type))

    def merges_kept(self, states: DataFrame, place: str | None) -> list[Column]:
        """The same over states that were merged before: they are like any others."""
        del states, place
        return self.merges()


def slot_of_key(columns: JobColumns, plan: RoutingPlan) -> str:
    """In SQL, the column ``SLOT``: the slot of a key on the ring; null for a null key."""
    key = columns.routing_sql()
    return f"IF({key} IS NOT NULL, {slot(key, plan.ring.ring_bits)}, NULL) AS {SLOT}"


def _few_left_over(plan: RoutingPlan) -> bool:
    """Whether the plan expects at most a few rows to be left over; see ``FEW_LEFT_OVER``."""
    expected = [max(0, rows) for rows in plan.expected_rows]
    left_over = sum(max(0, rows - (plan.budget_rows or 0)) for rows in expected)
    return bool(expected) and left_over <= FEW_LEFT_OVER * sum(expected)
