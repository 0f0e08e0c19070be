"""Quantiles by KLL sketches: Karnin, Lang, Liberty (2016), "Optimal quantile approximation in streams"."""

import math
from collections.abc import Callable, Sequence
from functools import reduce
from typing import NamedTuple, cast

from pydantic import Field
from pyspark.sql import Column
from pyspark.sql import functions as F

from skewless.aggregates.accumulator import INTEGRAL_TYPES, decimal_digits, one_of_required, quantity_required
from skewless.aggregates.shipped.value_counts import Percentages
from skewless_spark.aggregates.definition import Arguments, NativeAggregate
from skewless_spark.aggregates.native.sums import Options, publishing


class SketchOptions(Options):
    """Options of ``approx_percentile`` with ``publish: state``."""

    accuracy: int = Field(default=75, ge=5, le=20_000)
    """The rank of the result is off by at most 1/accuracy of the rows."""

    @property
    def k(self) -> int:
        """The size of the sketch: with 99 % confidence the rank of a quantile is off by at most 2.296 / k**0.9723.

        ``KllHelper.getNormalizedRankError`` of Apache DataSketches.
        """
        return max(8, math.ceil((2.296 * self.accuracy) ** (1 / 0.9723)))


class PercentileOptions(Percentages, SketchOptions):
    """Options of ``approx_percentile``."""


class _Measure(NamedTuple):
    """How values of a type are converted for a sketch, and back."""

    sketch: str
    """``bigint`` or ``double``, the variant of Spark's functions."""
    measured: Callable[[Column], Column]
    """Converts a value to a number of the sketch; it keeps the order of values."""
    restored: Callable[[Column], Column]
    """Converts a number of the sketch back to a value."""


def _measure(spark_type: str) -> _Measure:
    digits = decimal_digits(spark_type)
    if spark_type in INTEGRAL_TYPES:
        found = _Measure("bigint", lambda value: value.cast("bigint"), lambda number: number.cast(spark_type))
    elif spark_type == "date":
        found = _Measure(
            "bigint",
            lambda value: F.unix_date(value).cast("bigint"),
            lambda number: F.date_from_unix_date(number.cast("int")),
        )
    elif spark_type == "timestamp":
        found = _Measure("bigint", F.unix_micros, F.timestamp_micros)
    elif digits and digits[0] <= _DIGITS_OF_BIGINT:
        one = F.lit(10 ** digits[1]).cast(f"decimal({digits[1] + 1},0)")
        unit = F.lit(f"1e-{digits[1]}").cast(f"decimal({digits[1] + 1},{digits[1]})")
        found = _Measure(
            "bigint",
            lambda value: (value * one).cast("bigint"),
            lambda number: (number.cast("decimal(19,0)") * unit).cast(spark_type),
        )
    elif digits:  # the nearest double of the largest ones is beyond them
        text = f"{'9' * (digits[0] - digits[1])}.{'9' * digits[1]}"
        beyond = float(text)
        below = math.nextafter(beyond, 0)
        found = _Measure(
            "double",
            lambda value: value.cast("double"),
            lambda number: (
                F.when(number >= beyond, F.lit(text).cast(spark_type))
                .when(number <= -beyond, F.lit(f"-{text}").cast(spark_type))
                # Which Spark may compute for the others, too.
                .when(number.isNotNull(), F.greatest(F.least(number, F.lit(below)), F.lit(-below)).cast(spark_type))
            ),
        )
    else:
        found = _Measure("double", lambda value: value.cast("double"), lambda number: number.cast(spark_type))
    return found


#: Every decimal of at most this many digits, as a whole number of its last digit, fits into a bigint.
_DIGITS_OF_BIGINT = 18


def _kll(function: str, kind: str, *arguments: Column | str | int) -> Column:
    """A function of Spark's that has a variant for each kind of number; before Spark 4.1 there are none."""
    return cast("Column", getattr(F, f"kll_{function}_{kind}")(*arguments))


def _update(arguments: Arguments, options: PercentileOptions) -> tuple[Column]:
    measure = _measure(arguments.spark_types[0])
    return (_kll("sketch_agg", measure.sketch, measure.measured(arguments.columns[0]), options.k),)


def _merge(states: Sequence[str], options: PercentileOptions, spark_type: str) -> tuple[Column]:
    return (_kll("merge_agg", _measure(spark_type).sketch, states[0], options.k),)


def _evaluate(states: Sequence[Column], options: PercentileOptions, spark_type: str) -> Column:
    """Null for a key without values, for which Spark's function would raise an error."""
    measure = _measure(spark_type)
    found = F.when(_kll("sketch_get_n", measure.sketch, states[0]) > 0, _restored(states[0], options.shares, measure))
    return found if options.percentages is not None else found[0]


#: One in 100 quantiles is off by more than its stated error, and there may be millions of keys. The error of a rank is
#: about normal; by more than half as much again, one in 10,000 is off.
_BEYOND = 1.5


def _agree(
    result: Column, states: Sequence[Column], options: PercentileOptions, spark_type: str, _rows: Column
) -> Column:
    measure = _measure(spark_type)
    found = result if options.percentages is not None else F.array(result)
    inside = _inside(found, options.shares, options.accuracy, lambda shares: _restored(states[0], shares, measure))
    return F.when(_kll("sketch_get_n", measure.sketch, states[0]) > 0, inside).otherwise(result.isNull())


def _inside(
    found: Column, shares: Sequence[float], accuracy: int, quantiles: Callable[[Sequence[float]], Column]
) -> Column:
    off = 2 * _BEYOND / accuracy
    low, high = (quantiles([min(1.0, max(0.0, share + sign * off)) for share in shares]) for sign in (-1, 1))
    return reduce(Column.__and__, (found[at].between(low[at], high[at]) for at in range(len(shares))))


def _quantiles(sketch: Column, shares: Sequence[float], kind: str) -> Column:
    return _kll("sketch_get_quantile", kind, sketch, F.array(*map(F.lit, shares)))


def _restored(sketch: Column, shares: Sequence[float], measure: _Measure) -> Column:
    return F.transform(_quantiles(sketch, shares, measure.sketch), measure.restored)


def _plain(spark_type: str) -> str:
    return "bigint" if spark_type in INTEGRAL_TYPES else spark_type


#: Two sketches are compared by these quantiles.
_COMPARED = tuple(at / 10 for at in range(1, 10))


def _like_rows(
    result: Column, states: Sequence[Column], options: SketchOptions, spark_type: str, _rows: Column
) -> Column:
    (state,), kind = states, _plain(spark_type)
    counted = _kll("sketch_get_n", kind, state)
    found = _quantiles(result, _COMPARED, kind)
    inside = _inside(found, _COMPARED, options.accuracy, lambda shares: _quantiles(state, shares, kind))
    return F.when(_kll("sketch_get_n", kind, result) != counted, False).when(counted > 0, inside).otherwise(True)


def _shown(result: Column, _options: SketchOptions, spark_type: str) -> Column:
    kind = _plain(spark_type)
    counted = _kll("sketch_get_n", kind, result)
    median = F.when(counted > 0, _kll("sketch_get_quantile", kind, result, F.lit(0.5)))
    told = (F.lit("a sketch of "), counted, F.lit(" values"))
    return F.concat(*told, F.coalesce(F.concat(F.lit(", their median about "), median), F.lit("")))


APPROX_PERCENTILE = NativeAggregate(
    "approx_percentile",
    accepts=quantity_required,
    update=_update,
    merge=_merge,
    evaluate=_evaluate,
    options=PercentileOptions,
    state_bytes=200,
    any_order=True,
    agrees=_agree,
)
APPROX_PERCENTILE = publishing(
    APPROX_PERCENTILE,
    accepts=one_of_required("float", "double"),
    update=lambda arguments, options: (
        _kll("sketch_agg", _plain(arguments.spark_types[0]), arguments.columns[0], options.k),
    ),
    merge=lambda states, options, spark_type: (_kll("merge_agg", _plain(spark_type), states[0], options.k),),
    options=SketchOptions,
    agrees=_like_rows,
    shown=_shown,
)
