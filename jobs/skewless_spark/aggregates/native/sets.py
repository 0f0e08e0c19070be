"""All values of a key in one state: as a set, as a list, or counted as distinct values.

Such a state is as large as the values in it. States merge, but the result of a key with a hundred million distinct
values is one row of a hundred million values, as in plain Spark.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F

from skewless.aggregates.argument_types import orderable_required
from skewless_spark.aggregates.definition import Arguments, NativeAggregate
from skewless_spark.aggregates.native.simple_states import merged_by


def _update_set(arguments: Arguments, options: object) -> tuple[Column]:
    """Spark treats all NaN as one value, and negative zero as zero, here and in the union."""
    del options
    return (F.collect_set(arguments.columns[0]),)


def _evaluate_set(states: Sequence[Column], options: object, spark_type: str) -> Column:
    """Sorted, so that equal sets are equal arrays."""
    del options, spark_type
    return F.sort_array(states[0])


def _evaluate_count(states: Sequence[Column], options: object, spark_type: str) -> Column:
    del options, spark_type
    return F.size(states[0]).cast("bigint")


def _update_list(arguments: Arguments, options: object) -> tuple[Column]:
    """Each value with its origin, by which ``_evaluate_list`` sorts the whole list."""
    del options
    (value,), origin = arguments.columns, arguments.origin
    placed = F.struct(origin.alias("origin"), value.alias("value"))
    return (F.collect_list(F.when(value.isNotNull(), placed)),)


def _evaluate_list(states: Sequence[Column], options: object, spark_type: str) -> Column:
    del options, spark_type
    return F.transform(F.sort_array(states[0]), lambda one: one["value"])


COLLECT_SET = NativeAggregate(
    "collect_set",
    accepts=orderable_required,
    update=_update_set,
    merge=merged_by(F.collect_union),
    evaluate=_evaluate_set,
    state_bytes=64,
)
COUNT_DISTINCT = NativeAggregate(
    "count_distinct",
    accepts=orderable_required,
    update=_update_set,
    merge=merged_by(F.collect_union),
    evaluate=_evaluate_count,
    state_bytes=64,
)
COLLECT_LIST = NativeAggregate(
    "collect_list",
    accepts=orderable_required,
    update=_update_list,
    merge=merged_by(lambda name: F.flatten(F.collect_list(name))),
    evaluate=_evaluate_list,
    state_bytes=96,
    reads_origin=True,
    any_order=True,
)
