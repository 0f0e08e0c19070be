"""Aggregates whose state is one column that Spark itself merges; counts are."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import ROUND_CEILING, Context, Decimal
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pyspark.sql import Column
from pyspark.sql import functions as F

from skewless.aggregates.argument_types import (
    INTEGRAL_TYPES,
    anything,
    boolean_required,
    decimal_digits,
    number_required,
)
from skewless.document import unmet
from skewless_spark.aggregates.definition import Arguments, NativeAggregate

#: An aggregate function of Spark, over a column or the name of one.
Function = Callable[["Column | str"], Column]


class Options(BaseModel):
    """Base of the options of native aggregates; values are not converted to other types."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


def no_floats(spark_types: Sequence[str]) -> bool:
    """For ``combines_exactly``: floating-point sums are rounded at each step, and 0.0 equals -0.0."""
    return not any("float" in kind or "double" in kind for kind in spark_types)


def of_itself(name: str, accepts: Callable[[str], str], function: Function) -> NativeAggregate:
    """An aggregate whose state is its result, and whose states it merges itself, like ``max``."""
    return NativeAggregate(
        name,
        accepts=accepts,
        update=lambda arguments, _: (function(arguments.columns[0]),),
        merge=merged_by(function),
        evaluate=the_state,
        combines_exactly=no_floats,
    )


def merged_by(function: Callable[[str], Column]) -> Callable[[Sequence[str], object, str], Sequence[Column]]:
    """For ``merge``: every state column is merged by one aggregate function, like counts by ``sum``."""
    return lambda states, _, __: tuple(function(name) for name in states)


def publishing(definition: NativeAggregate, **fields: Any) -> NativeAggregate:
    """The aggregate, and what it is with ``publish: state``: other in some fields, and its result is its state."""
    return replace(definition, published=replace(definition, **{"evaluate": the_state, **fields}))


def of_state(function: Callable[[Column], Column]) -> Callable[[Sequence[Column], object, str], Column]:
    """For ``evaluate``: the result is made of the only state column, whatever the options and the type."""
    return lambda states, _, __: function(states[0])


#: For ``evaluate``: the state is the result.
the_state = of_state(lambda state: state)


COUNT = NativeAggregate(
    "count",
    accepts=anything,
    update=lambda arguments, _: (F.count(arguments.columns[0]),),
    merge=merged_by(F.sum),
    evaluate=the_state,
    needs_column=False,
    of_rows=True,
    combines_exactly=lambda _: True,
)
COUNT_IF = replace(
    COUNT, name="count_if", accepts=boolean_required, needs_column=True, of_rows=False,
    update=lambda arguments, _: (F.count_if(arguments.columns[0]),),
)  # fmt: skip


class HistogramOptions(Options):
    """Options of ``histogram``."""

    #: Each bin is a state column; for more bins than this, a sketch is the better tool.
    edges: list[float] = Field(min_length=1, max_length=64, description="Where one bin ends and the next begins.")

    @model_validator(mode="after")
    def _ascending(self) -> Self:
        if not all(low < high for low, high in itertools.pairwise(self.edges)):
            raise unmet("edges that ascend", str(self.edges)[:120])
        return self

    @property
    def bins(self) -> list[tuple[float, float]]:
        """The lower edge (inclusive) and upper edge (exclusive) of every bin; the two outer bins are unbounded."""
        return list(itertools.pairwise([-math.inf, *self.edges, math.inf]))


def _update_histogram(arguments: Arguments, options: HistogramOptions) -> list[Column]:
    """One count per bin. Spark sorts NaN above infinity, but NaN lies in no bin."""
    (value,), (kind,) = arguments.columns, arguments.spark_types
    first, *inner, last = (tuple(_edge(one, kind) for one in each) for each in options.bins)
    above = value >= last[0]
    bins = [
        value < first[1],
        *((value >= low) & (value < high) for low, high in inner),
        above & ~F.isnan(value) if kind in {"float", "double"} else above,
    ]
    return [F.count_if(inside) for inside in bins]


#: Enough digits for any double.
_EXACTLY = Context(prec=800)


def _edge(edge: float, kind: str) -> Column:
    """An edge to compare values of a type with, all digits of which count: the least such value not below it."""
    digits = (18, 0) if kind in INTEGRAL_TYPES else decimal_digits(kind)
    if digits is None or not math.isfinite(edge):
        return F.lit(edge)
    least = Decimal(repr(edge)).quantize(Decimal(1).scaleb(-digits[1]), ROUND_CEILING, _EXACTLY)
    if least.adjusted() >= 38 - digits[1]:
        return F.lit(math.copysign(math.inf, edge))  # beyond all values of the type
    return F.lit(least) if digits[1] or least.adjusted() > 17 else F.lit(int(least))


def _evaluate_histogram(states: Sequence[Column], options: HistogramOptions, spark_type: str) -> Column:
    del spark_type
    bins = [
        F.struct(F.lit(low).alias("lower"), F.lit(high).alias("upper"), count.alias("count"))
        for (low, high), count in zip(options.bins, states, strict=True)
    ]
    return F.array(*bins)


HISTOGRAM = NativeAggregate(
    "histogram",
    accepts=number_required,
    update=_update_histogram,
    merge=merged_by(F.sum),
    evaluate=_evaluate_histogram,
    options=HistogramOptions,
    state_bytes=64,
    any_order=True,
)
