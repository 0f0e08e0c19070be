"""Minimum, maximum, first and last values, the value of another column in their row; and booleans, and sets.

Such a state is as large as the values in it. States merge, but the result of a key with a hundred million distinct
values is one row of a hundred million values, as in plain Spark.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from pydantic import Field
from pyspark.sql import Column
from pyspark.sql import functions as F

from skewless.aggregates.accumulator import (
    INTEGRAL_TYPES,
    anything,
    boolean_required,
    decimal_digits,
    integer_required,
    number_required,
    orderable_required,
)
from skewless_spark.aggregates.definition import Arguments, NativeAggregate
from skewless_spark.aggregates.native.sums import (
    Function,
    Options,
    decimal_mean,
    merged_by,
    no_floats,
    of_itself,
    of_state,
    sum_type,
    the_state,
)
from skewless_spark.session.versions import collect_union

MIN = of_itself("min", orderable_required, F.min)
MAX = of_itself("max", orderable_required, F.max)


class ByOptions(Options):
    """Options of ``max_by`` and ``min_by``."""

    by: str = Field(min_length=1)
    """The column whose extreme is looked for."""


class OrderOptions(Options):
    """Options of ``first`` and ``last``."""

    ignore_nulls: bool = Field(default=False)
    """Look at rows with a value only."""


def _beside(
    name: str, beside: Callable[..., Column], extreme: Function, placed: Callable[..., Column], **fields: Any
) -> NativeAggregate:
    """The value in the row with the extreme of a place (null: passed over): of any type, as a map has no order."""

    def update(arguments: Arguments, options: object) -> tuple[Column, Column]:
        place = placed(arguments, options)
        return beside(arguments.columns[0], place), extreme(place)

    def merge(states: Sequence[str], _options: object, _spark_type: str) -> tuple[Column, Column]:
        return beside(*states), extreme(states[1])

    return NativeAggregate(
        name, accepts=anything, update=update, merge=merge, evaluate=the_state, reads_origin=True,
        combines_exactly=no_floats, **fields,
    )  # fmt: skip


def _by(tie: Callable[[Column], Column]) -> Callable[..., Column]:
    """The other column. Of equal ones the first row counts, so that the order in which tasks read does not matter."""

    def placed(arguments: Arguments, _: object) -> Column:
        by = arguments.columns[1]
        return F.when(by.isNotNull(), F.struct(by.alias("by"), tie(arguments.origin).alias("tie")))

    return placed


def _origin(arguments: Arguments, options: OrderOptions) -> Column:
    return F.when(arguments.columns[0].isNotNull(), arguments.origin) if options.ignore_nulls else arguments.origin


_OF_BY: dict[str, Any] = {"options": ByOptions, "further": {"by": orderable_required}, "state_bytes": 48}
_OF_ORDER: dict[str, Any] = {"options": OrderOptions, "state_bytes": 32}
MAX_BY = _beside("max_by", F.max_by, F.max, _by(lambda origin: -origin), **_OF_BY)
MIN_BY = _beside("min_by", F.min_by, F.min, _by(lambda origin: origin), **_OF_BY)
FIRST = _beside("first", F.min_by, F.min, _origin, **_OF_ORDER)
LAST = _beside("last", F.max_by, F.max, _origin, **_OF_ORDER)


BOOL_AND = of_itself("bool_and", boolean_required, F.bool_and)
BOOL_OR = of_itself("bool_or", boolean_required, F.bool_or)
BIT_AND = of_itself("bit_and", integer_required, F.bit_and)
BIT_OR = of_itself("bit_or", integer_required, F.bit_or)


def _bits(values: Column, spark_type: str) -> Column:
    return F.coalesce(F.bit_xor(values), F.lit(0).cast(spark_type))


# The bits, and the number of values: with none the bits are 0, and the result is null.
BIT_XOR = NativeAggregate(
    "bit_xor",
    accepts=integer_required,
    update=lambda seen, _: (_bits(seen.columns[0], seen.spark_types[0]), F.count(seen.columns[0])),
    merge=lambda states, _, spark_type: (_bits(F.col(states[0]), spark_type), F.sum(states[1])),
    evaluate=lambda states, _, __: F.when(states[1] > 0, states[0]),
    combines_exactly=lambda _: True,
)


def _update_list(arguments: Arguments, _options: object) -> tuple[Column]:
    (value,), origin = arguments.columns, arguments.origin
    placed = F.struct(origin.alias("origin"), value.alias("value"))
    return (F.collect_list(F.when(value.isNotNull(), placed)),)


def _unsigned_zero(arguments: Arguments) -> Column:
    """The argument, of zeros the one without a sign: Spark 3.5 tells them apart in sets."""
    (value,), (kind,) = arguments.columns, arguments.spark_types
    return value + F.lit(0.0).cast(kind) if kind in {"float", "double"} else value


COLLECT_SET = NativeAggregate(
    "collect_set",
    accepts=orderable_required,
    # Spark treats all NaN as one value, and negative zero as zero, here and in the union.
    update=lambda arguments, _: (F.collect_set(_unsigned_zero(arguments)),),
    merge=merged_by(collect_union),
    evaluate=of_state(F.sort_array),  # so that equal sets are equal arrays
    state_bytes=64,
)
COUNT_DISTINCT = replace(
    COLLECT_SET, name="count_distinct", evaluate=of_state(lambda values: F.size(values).cast("bigint"))
)


def _added_exactly(spark_type: str) -> str:
    """In an expression, unlike in ``sum``, Spark drops digits of sums that may have more than 38."""
    precision, _ = decimal_digits(spark_type) or (0, 0)
    return number_required(spark_type) or ("a number of at most 27 digits" if precision > 27 else "")


def _sum_of_set(states: Sequence[Column], _options: object, spark_type: str) -> Column:
    digits = decimal_digits(spark_type)
    kind = sum_type(spark_type) if digits else "bigint" if spark_type in INTEGRAL_TYPES else "double"
    values = F.sort_array(states[0])
    return F.when(
        F.size(values) > 0, F.aggregate(values, F.lit(0).cast(kind), lambda total, one: (total + one).cast(kind))
    )


def _avg_of_set(states: Sequence[Column], options: object, spark_type: str) -> Column:
    digits = decimal_digits(spark_type)
    rows = F.size(states[0]).cast("bigint")
    total = _sum_of_set(states, options, spark_type if digits else "double")
    return decimal_mean(total, rows, *digits) if digits else F.try_divide(total, rows)


SUM_DISTINCT = replace(COLLECT_SET, name="sum_distinct", accepts=_added_exactly, evaluate=_sum_of_set)
AVG_DISTINCT = replace(SUM_DISTINCT, name="avg_distinct", evaluate=_avg_of_set)
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
