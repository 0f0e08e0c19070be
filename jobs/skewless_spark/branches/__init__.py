"""The kinds of states that a job may have, a module each, and what a task makes of its rows with them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from skewless_spark.branches.native import Native
from skewless_spark.branches.python import Python
from skewless_spark.states.job_columns import JobColumns

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
        rows, *(state for one in branches_of(columns) for state in one.merges())
    )


def merges_kept(states: DataFrame, columns: JobColumns, place: str | None = PLACE) -> list[Column]:
    """As aggregate expressions: rows and merged states of a key, over states that are kept."""
    merges = [state for one in branches_of(columns) for state in one.merges_kept(states, place)]
    return [F.sum("rows").alias("rows"), *merges]


def evaluate(states: DataFrame, columns: JobColumns, *, told: bool = False) -> DataFrame:
    """Rows and numbered results of merged states; with the states of sketches too, if they are to be told."""
    branches, sketches = branches_of(columns), columns.sketches if told else []
    selected = states.select(
        *columns.result_keys, "rows", *sketches, *(column for one in branches for column in one.to_evaluate())
    )
    return reduce(lambda results, branch: branch.evaluated(results), branches, selected).select("*", *columns.counts)
