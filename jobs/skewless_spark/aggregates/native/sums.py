"""Counts, sums, averages and histograms: states that Spark itself merges."""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import ROUND_CEILING, Context, Decimal
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pyspark.sql import Column
from pyspark.sql import functions as F

from skewless.aggregates.accumulator import INTEGRAL_TYPES, anything, boolean_required, decimal_digits, number_required
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
    edges: list[float] = Field(min_length=1, max_length=64)
    """Where one bin ends and the next begins."""

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


def _evaluate_histogram(states: Sequence[Column], options: HistogramOptions, _spark_type: str) -> Column:
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


#: The exact sum of integers has two columns: ``high * 2**32 + low``, where ``0 <= low < 2**32``.
_BITS = 32
_LOW = (1 << _BITS) - 1
#: The lower half of an integer is added up in two quarters: so many bits of 2**47 values fit into a bigint.
_QUARTER_BITS = 16
_QUARTER = (1 << _QUARTER_BITS) - 1


def _update_sum(arguments: Arguments, _options: object) -> tuple[Column, ...]:
    """An exact sum, and the number of values: with none the sum is 0, and the result is null.

    The sum of a task overflows as Spark's ``sum`` does. Sums of tasks are merged without overflow.
    """
    (value,), (spark_type,) = arguments.columns, arguments.spark_types
    total = F.sum(value)
    if spark_type in INTEGRAL_TYPES:
        known = F.coalesce(total, F.lit(0))
        return F.shiftright(known, _BITS), known.bitwiseAND(F.lit(_LOW)), F.count(value)
    if decimal_digits(spark_type):
        return F.coalesce(total, F.lit(0).cast(sum_type(spark_type))), F.count(value)
    return (total,)


def _update_avg(arguments: Arguments, options: object) -> tuple[Column, ...]:
    """As for ``sum``, but a bigint does not overflow: Spark's ``avg`` adds up integers as doubles."""
    (value,), (spark_type,) = arguments.columns, arguments.spark_types
    if spark_type == "bigint":
        high = F.coalesce(F.sum(F.shiftright(value, _BITS)), F.lit(0))
        middle = F.coalesce(F.sum(F.shiftright(value, _QUARTER_BITS).bitwiseAND(F.lit(_QUARTER))), F.lit(0))
        last = F.coalesce(F.sum(value.bitwiseAND(F.lit(_QUARTER))), F.lit(0))
        carried = middle + F.shiftright(last, _QUARTER_BITS)
        low = F.shiftleft(carried.bitwiseAND(F.lit(_QUARTER)), _QUARTER_BITS) + last.bitwiseAND(F.lit(_QUARTER))
        return high + F.shiftright(carried, _QUARTER_BITS), low, F.count(value)
    if spark_type in INTEGRAL_TYPES or decimal_digits(spark_type):
        return _update_sum(arguments, options)
    return F.sum(value), F.count(value)


def _try_update(arguments: Arguments, options: object) -> tuple[Column, ...]:
    """As for ``avg``, but that a sum of decimals is null where it overflows."""
    (value,), (spark_type,) = arguments.columns, arguments.spark_types
    return (F.try_sum(value), F.count(value)) if decimal_digits(spark_type) else _update_avg(arguments, options)


def _try_merge(states: Sequence[str], options: object, spark_type: str) -> tuple[Column, ...]:
    """A sum of values that is null, since it overflowed, is null in all sums."""
    if not decimal_digits(spark_type):
        return _merge(states, options, spark_type)
    total, count = map(F.col, states)
    lost = F.count_if(total.isNull() & (count > 0))
    return F.when(lost == 0, F.try_sum(total).cast(sum_type(spark_type))), F.sum(count)


def _merge(states: Sequence[str], _options: object, spark_type: str) -> tuple[Column, ...]:
    """The sums of a decimal keep their type, however often they are merged."""
    if spark_type in INTEGRAL_TYPES:
        highs, lows, counts = states
        low = F.coalesce(F.sum(lows), F.lit(0))
        high = F.coalesce(F.sum(highs), F.lit(0)) + F.shiftright(low, _BITS)
        return high, low.bitwiseAND(F.lit(_LOW)), F.sum(counts)
    if decimal_digits(spark_type):
        totals, counts = states
        kind = sum_type(spark_type)
        return F.coalesce(F.sum(totals).cast(kind), F.lit(0).cast(kind)), F.sum(counts)
    return tuple(F.sum(name) for name in states)


def sum_type(spark_type: str) -> str:
    """The type of the sum of decimals."""
    precision, scale = decimal_digits(spark_type) or (38, 0)
    return f"decimal({min(38, precision + 10)},{scale})"


def _evaluate_sum(states: Sequence[Column], _options: object, spark_type: str) -> Column:
    if spark_type in INTEGRAL_TYPES:
        high, low, count = states
        return F.when(count > 0, high * F.lit(1 << _BITS) + low)
    if decimal_digits(spark_type):
        total, count = states
        return F.when(count > 0, total)
    return states[0]


def _evaluate_avg(states: Sequence[Column], _options: object, spark_type: str) -> Column:
    if spark_type in INTEGRAL_TYPES:
        high, low, count = states
        return F.try_divide(high.cast("double") * F.lit(float(1 << _BITS)) + low.cast("double"), count)
    total, count = states
    digits = decimal_digits(spark_type)
    return F.try_divide(total, count) if digits is None else decimal_mean(total, count, *digits)


#: A quotient in SQL has at most 38 digits. Up to this precision of the summands (the sum has ten digits more) it
#: keeps at least eight more decimal places than the mean, enough to round by.
_PLAIN_PRECISION = 16

#: Up to this scale, a remainder divided by fewer than 1e9 rows keeps at least three more decimal places.
_EXACT_SCALE = 18


def decimal_mean(total: Column, count: Column, precision: int, scale: int) -> Column:
    """The mean of decimals, of the type of Spark's ``avg`` and rounded half up like it.

    Division in SQL drops decimal places of a wide decimal; the division inside Spark's ``avg`` does not. So we divide
    twice: the whole part, and the remainder, which is small. Where that does not fit (a mean of nearly 38 digits, a
    billion rows of one key), the plain quotient is the result.
    """
    mean_type = f"decimal({min(38, precision + 4)},{min(38, scale + 4)})"
    rows = F.when(count > 0, count).cast("decimal(19,0)")
    plain = F.try_divide(total, rows)
    if precision <= _PLAIN_PRECISION or scale > _EXACT_SCALE:
        return plain.cast(mean_type)
    remainder = _within(total % rows, 9, scale)
    fraction = F.try_divide(remainder, rows)
    # The quotient is the whole part plus the fraction, except for its last digits.
    whole = F.round(plain.cast("decimal(38,6)") - fraction.cast("decimal(10,6)"), 0)
    exact = _within(whole, 33 - scale, 0) + fraction.cast(f"decimal({scale + 5},{scale + 4})")
    # Each has its own cast: the common type of the two would have fewer decimal places.
    return F.coalesce(exact.cast(mean_type), plain.cast(mean_type))


def _within(number: Column, digits: int, scale: int) -> Column:
    """A number as a decimal of so many digits before its point and ``scale`` behind it; null if it has more."""
    return F.when(F.abs(number) < F.lit(Decimal(10) ** digits), number).cast(f"decimal({digits + scale},{scale})")


SUM = NativeAggregate(
    "sum", accepts=number_required, update=_update_sum, merge=_merge, evaluate=_evaluate_sum, combines_exactly=no_floats
)
AVG = replace(SUM, name="avg", update=_update_avg, evaluate=_evaluate_avg)


def _try_evaluate_sum(states: Sequence[Column], options: object, spark_type: str) -> Column:
    """Null where the sum of all values, in whatever order, is none of its type."""
    if spark_type not in INTEGRAL_TYPES:
        return _evaluate_sum(states, options, spark_type)
    high, low, count = states
    return F.when(count > 0, F.try_add(F.try_multiply(high, F.lit(1 << _BITS)), low))


TRY_SUM = replace(SUM, name="try_sum", update=_try_update, merge=_try_merge, evaluate=_try_evaluate_sum)
TRY_AVG = replace(TRY_SUM, name="try_avg", evaluate=_evaluate_avg)
