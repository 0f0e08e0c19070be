"""Logical and bitwise AND, OR and XOR."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F

from skewless.aggregates.argument_types import boolean_required, integer_required
from skewless_spark.aggregates.definition import Arguments, NativeAggregate
from skewless_spark.aggregates.native.simple_states import of_itself

BOOL_AND = of_itself("bool_and", boolean_required, F.bool_and)
BOOL_OR = of_itself("bool_or", boolean_required, F.bool_or)
BIT_AND = of_itself("bit_and", integer_required, F.bit_and)
BIT_OR = of_itself("bit_or", integer_required, F.bit_or)


def _update_xor(arguments: Arguments, options: object) -> tuple[Column, Column]:
    """The bits, 0 of no values, and the number of values: without it nobody could tell null from 0."""
    del options
    (value,), (spark_type,) = arguments.columns, arguments.spark_types
    return _bits(value, spark_type), F.count(value)


def _merge_xor(states: Sequence[str], options: object, spark_type: str) -> tuple[Column, Column]:
    del options
    bits, count = states
    return _bits(F.col(bits), spark_type), F.sum(count)


def _bits(values: Column, spark_type: str) -> Column:
    return F.coalesce(F.bit_xor(values), F.lit(0).cast(spark_type))


def _evaluate_xor(states: Sequence[Column], options: object, spark_type: str) -> Column:
    del options, spark_type
    bits, count = states
    return F.when(count > 0, bits)


BIT_XOR = NativeAggregate(
    "bit_xor",
    accepts=integer_required,
    update=_update_xor,
    merge=_merge_xor,
    evaluate=_evaluate_xor,
    combines_exactly=lambda _: True,
)
