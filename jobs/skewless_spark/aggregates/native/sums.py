"""Sums and averages of the same types and the same exactness as Spark's own."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F

from skewless.aggregates.argument_types import decimal_digits, number_required
from skewless_spark.aggregates.definition import Arguments, NativeAggregate
from skewless_spark.aggregates.native.simple_states import merged_by, no_floats


def _evaluate_sum(states: Sequence[Column], options: object, spark_type: str) -> Column:
    """Adding up partial sums widens a decimal a second time; this narrows it back to the type of Spark's ``sum``."""
    del options
    digits = decimal_digits(spark_type)
    if digits is None:
        return states[0]
    precision, scale = digits
    return states[0].cast(f"decimal({min(38, precision + 10)},{scale})")


def _update_avg(arguments: Arguments, options: object) -> tuple[Column, Column]:
    """The sum as a double, as in Spark's ``avg``, which therefore does not overflow where ``sum`` would."""
    del options
    (value,), (spark_type,) = arguments.columns, arguments.spark_types
    summand = value if decimal_digits(spark_type) else value.cast("double")
    return F.sum(summand), F.count(value)


def _evaluate_avg(states: Sequence[Column], options: object, spark_type: str) -> Column:
    """As in Spark's ``avg``: a decimal gets four more digits, any other type becomes a double."""
    total, count = _evaluate_sum(states[:1], options, spark_type), states[1]
    digits = decimal_digits(spark_type)
    return F.try_divide(total, count) if digits is None else _decimal_mean(total, count, *digits)


#: A quotient in SQL has at most 38 digits. Up to this precision of the summands (the sum has ten digits more) it
#: keeps at least eight more decimal places than the mean, enough to round by.
_PLAIN_PRECISION = 16

#: Up to this scale, a remainder divided by fewer than 1e9 rows keeps at least three more decimal places.
_EXACT_SCALE = 18


def _decimal_mean(total: Column, count: Column, precision: int, scale: int) -> Column:
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
    remainder = (total % rows).try_cast(f"decimal({scale + 9},{scale})")
    fraction = F.try_divide(remainder, rows)
    # The quotient is the whole part plus the fraction, except for its last digits.
    whole = F.round(plain.try_cast("decimal(38,6)") - fraction.cast("decimal(10,6)"), 0)
    exact = whole.try_cast(f"decimal({33 - scale},0)") + fraction.cast(f"decimal({scale + 5},{scale + 4})")
    # Each has its own cast: the common type of the two would have fewer decimal places.
    return F.coalesce(exact.cast(mean_type), plain.cast(mean_type))


SUM = NativeAggregate(
    "sum",
    accepts=number_required,
    update=lambda arguments, _: (F.sum(arguments.columns[0]),),
    merge=merged_by(F.sum),
    evaluate=_evaluate_sum,
    combines_exactly=no_floats,
)
AVG = NativeAggregate(
    "avg",
    accepts=number_required,
    update=_update_avg,
    merge=merged_by(F.sum),
    evaluate=_evaluate_avg,
    combines_exactly=lambda types: decimal_digits(types[0]) is not None,
)
