"""Sums and averages, as wide and as exact as Spark's own."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F

from skewless.aggregates.argument_types import decimal_digits, number_required
from skewless_spark.aggregates.definition import Arguments, NativeAggregate
from skewless_spark.aggregates.native.parts import merged_by


def _evaluate_sum(states: Sequence[Column], options: object, spark_type: str) -> Column:
    """Adding up sums widens a decimal once more than Spark's own ``sum`` does; narrow it back."""
    del options
    digits = decimal_digits(spark_type)
    if digits is None:
        return states[0]
    precision, scale = digits
    return states[0].cast(f"decimal({min(38, precision + 10)},{scale})")


def _update_avg(arguments: Arguments, options: object) -> tuple[Column, Column]:
    """Spark's average adds up doubles, and so cannot overflow where a sum would."""
    del options
    (value,), (spark_type,) = arguments.columns, arguments.spark_types
    summand = value if decimal_digits(spark_type) else value.cast("double")
    return F.sum(summand), F.count(value)


def _evaluate_avg(states: Sequence[Column], options: object, spark_type: str) -> Column:
    """As Spark's ``avg``: a decimal gets four more digits, anything else is a double."""
    total, count = _evaluate_sum(states[:1], options, spark_type), states[1]
    digits = decimal_digits(spark_type)
    return F.try_divide(total, count) if digits is None else _decimal_mean(total, count, *digits)


#: A quotient of SQL has at most 38 digits. Up to this precision of the summands (with ten more for the sum) it
#: keeps at least eight more behind the point than the mean has, to round by.
_PLAIN_PRECISION = 16

#: And up to this scale a remainder of less than 1e9 rows, divided, has at least three more.
_EXACT_SCALE = 18


def _decimal_mean(total: Column, count: Column, precision: int, scale: int) -> Column:
    """The mean of decimals, of the type of Spark's ``avg``, and rounded half up as it is there.

    Division in SQL gives up digits behind the point of a wide decimal, which the division inside
    Spark's ``avg`` does not. So we divide twice: the whole part, and the remainder, which is small.
    Where that does not fit (a mean of nearly 38 digits, a billion rows of one key) the plain quotient stands.
    """
    mean_type = f"decimal({min(38, precision + 4)},{min(38, scale + 4)})"
    rows = F.when(count > 0, count).cast("decimal(19,0)")
    plain = F.try_divide(total, rows)
    if precision <= _PLAIN_PRECISION or scale > _EXACT_SCALE:
        return plain.cast(mean_type)
    remainder = (total % rows).try_cast(f"decimal({scale + 9},{scale})")
    fraction = F.try_divide(remainder, rows)
    # The quotient is the whole part and the fraction, but for its last digits.
    whole = F.round(plain.try_cast("decimal(38,6)") - fraction.cast("decimal(10,6)"), 0)
    exact = whole.try_cast(f"decimal({33 - scale},0)") + fraction.cast(f"decimal({scale + 5},{scale + 4})")
    # Each with its own cast: the common type of the two would have fewer digits behind the point.
    return F.coalesce(exact.cast(mean_type), plain.cast(mean_type))


SUM = NativeAggregate(
    "sum",
    accepts=number_required,
    update=lambda arguments, _: (F.sum(arguments.columns[0]),),
    merge=merged_by(F.sum),
    evaluate=_evaluate_sum,
)
AVG = NativeAggregate(
    "avg",
    accepts=number_required,
    update=_update_avg,
    merge=merged_by(F.sum),
    evaluate=_evaluate_avg,
)
