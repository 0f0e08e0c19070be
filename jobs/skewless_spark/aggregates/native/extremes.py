"""Minimum, maximum, first and last values, and the value of another column in their row."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pydantic import Field
from pyspark.sql import Column
from pyspark.sql import functions as F

from skewless.aggregates.argument_types import anything, orderable_required
from skewless_spark.aggregates.definition import Arguments, NativeAggregate
from skewless_spark.aggregates.native.simple_states import (
    Function,
    Options,
    merged_by,
    no_floats,
    of_itself,
    of_state,
    the_state,
)

MIN = of_itself("min", orderable_required, F.min)
MAX = of_itself("max", orderable_required, F.max)


class ByOptions(Options):
    """Options of ``max_by`` and ``min_by``."""

    by: str = Field(min_length=1, description="The column whose extreme is looked for.")


def _beside(name: str, function: Function, tie: Callable[[Column], Column]) -> NativeAggregate:
    """The value in the row with the extreme of another column; of equal extremes the first row counts."""

    def update(arguments: Arguments, options: object) -> tuple[Column]:
        del options
        value, by = arguments.columns
        row = F.struct(by.alias("by"), tie(arguments.origin).alias("tie"), value.alias("value"))
        return (function(F.when(by.isNotNull(), row)),)

    return NativeAggregate(
        name,
        accepts=anything,
        update=update,
        merge=merged_by(function),
        evaluate=of_state(lambda row: row["value"]),
        options=ByOptions,
        further={"by": orderable_required},
        state_bytes=48,
        reads_origin=True,
        combines_exactly=no_floats,
    )


# Of equal rows the first one counts, so that the result does not depend on the order in which tasks read.
MAX_BY = _beside("max_by", F.max, lambda origin: -origin)
MIN_BY = _beside("min_by", F.min, lambda origin: origin)


class OrderOptions(Options):
    """Options of ``first`` and ``last``."""

    ignore_nulls: bool = Field(default=False, description="Look at rows with a value only.")


def _at_the_end(name: str, beside: Callable[..., Column], extreme: Function) -> NativeAggregate:
    """The value at the smallest or largest origin, and that origin: two plain columns allow hash aggregation."""

    def update(arguments: Arguments, options: OrderOptions) -> tuple[Column, Column]:
        (value,), origin = arguments.columns, arguments.origin
        place = F.when(value.isNotNull(), origin) if options.ignore_nulls else origin
        return beside(value, place), extreme(place)

    def merge(states: Sequence[str], options: object, spark_type: str) -> tuple[Column, Column]:
        del options, spark_type
        value, place = states
        return beside(value, place), extreme(place)

    return NativeAggregate(
        name,
        accepts=anything,
        update=update,
        merge=merge,
        evaluate=the_state,
        options=OrderOptions,
        state_bytes=32,
        reads_origin=True,
        combines_exactly=no_floats,
    )


FIRST = _at_the_end("first", F.min_by, F.min)
LAST = _at_the_end("last", F.max_by, F.max)
