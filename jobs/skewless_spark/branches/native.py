"""Native aggregates: states are typed columns, made, merged and evaluated by Spark itself."""

from collections.abc import Callable, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from skewless.routing.plan import RoutingPlan
from skewless_spark.aggregates.binding import BoundAggregate
from skewless_spark.aggregates.definition import NativeAggregate
from skewless_spark.session.versions import numbers_of
from skewless_spark.stage.routes import SLOT, TASK, Stage, slot, whole_keys
from skewless_spark.stage.state_counts import COUNTS
from skewless_spark.states.committed_files import NATIVE
from skewless_spark.states.job_columns import HASH, WHOLE, JobColumns, summed_hash
from skewless_spark.states.python_reduction import ADMITTED, FORWARDED

#: What a row of results keeps of its state: the rest is the same for all, or can be told from these.
KEPT = (TASK, "rows", "admitted", HASH, SLOT)
#: The counts of the ledger in SQL, of rows that are all kept and of others.
_ALL_COUNTED = {
    "rows": "count(1)",
    "left_over": "count(NULL)",
    "admitted": f"count(IF(arrival = {ADMITTED}, 1, NULL))",
    "forwarded": f"count(IF(arrival = {FORWARDED}, 1, NULL))",
}
_COUNTED = _ALL_COUNTED | {"rows": "count(IF(kept, 1, NULL))", "left_over": "count(IF(kept, NULL, 1))"}


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
        return list(dict.fromkeys(name for one in self.columns.native for name in self.columns.states(one)))

    def made(
        self, rows: DataFrame, by: Sequence[str], counts: Sequence[str] = COUNTS, *also: Column, all_kept: bool = True
    ) -> DataFrame:
        """The states of rows by some columns, after their counts and hash, and before what else is aggregated.

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
        hashed = summed_hash(columns.row_hash if all_kept else f"IF(kept, {columns.row_hash}, 0L)")
        counted = (F.expr(text) for text in (*(f"{sql[name]} AS {name}" for name in counts), hashed))
        return rows.groupBy(*by).agg(*counted, *updates, *also)

    def states(self, rows: DataFrame, stage: Stage | None, *, counts: bool, placed: int = 0) -> DataFrame:
        """States of the rows of a task that are ``kept``, with the counts of the ledger; without a stage all are."""
        del counts
        made = self.made(rows, self.order, all_kept=stage is None or stage.plan.budget_rows is None)
        return numbers_of(made, placed, TASK).withColumn("kind", F.lit(NATIVE))

    def _by_state(self, of: Callable[[BoundAggregate[NativeAggregate]], Sequence[Column]]) -> list[Column]:
        columns = self.columns
        each = ((columns.states(one), of(one)) for one in columns.native)
        found = {name: column for names, made in each for name, column in zip(names, made, strict=True)}
        return [column.alias(name) for name, column in found.items()]

    def with_results(self, outcome: DataFrame, stage: Stage) -> DataFrame:
        """What a stage that evaluates has made, with the results of whole keys."""
        states = outcome.selectExpr("*", slot_of_key(self.columns, stage.plan))
        return self.evaluated_in_stage(states, whole_keys(stage.plan, self.columns.routing_sql()))

    def evaluated_in_stage(self, states: DataFrame, whole: str | None, *also: str) -> DataFrame:
        """Results in place of states, see ``WHOLE``.

        Args:
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
