"""All values of a key in one state: as a set, as a list, or counted as distinct values.

Such a state is as large as the values in it. States merge, but the result of a key with a hundred million distinct
values is one row of a hundred million values, as in plain Spark.
"""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import Column
from pyspark.sql import functions as F

from skewless.aggregates.argument_types import orderable_required
from skewless_spark.aggregates.definition import Arguments, NativeAggregate
from skewless_spark.aggregates.native.simple_states import merged_by, of_state
from skewless_spark.session.versions import collect_union


def _update_list(arguments: Arguments, options: object) -> tuple[Column]:
    """Each value with its origin, by which the whole list is sorted."""
    del options
    (value,), origin = arguments.columns, arguments.origin
    placed = F.struct(origin.alias("origin"), value.alias("value"))
    return (F.collect_list(F.when(value.isNotNull(), placed)),)


COLLECT_SET = NativeAggregate(
    "collect_set",
    accepts=orderable_required,
    # Spark treats all NaN as one value, and negative zero as zero, here and in the union.
    update=lambda arguments, _: (F.collect_set(arguments.columns[0]),),
    merge=merged_by(collect_union()),
    evaluate=of_state(F.sort_array),  # so that equal sets are equal arrays
    state_bytes=64,
)
COUNT_DISTINCT = replace(
    COLLECT_SET, name="count_distinct", evaluate=of_state(lambda values: F.size(values).cast("bigint"))
)
COLLECT_LIST = NativeAggregate(
    "collect_list",
    accepts=orderable_required,
    update=_update_list,
    merge=merged_by(lambda name: F.flatten(F.collect_list(name))),
    evaluate=of_state(lambda placed: F.transform(F.sort_array(placed), lambda one: one["value"])),
    state_bytes=96,
    reads_origin=True,
    any_order=True,
)
