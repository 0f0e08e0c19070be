"""Native aggregates: states are typed columns, and no row leaves the JVM.

Names and options are those of Spark SQL. Every update sees null for a row that does not
count (left over by the budget), and every function here ignores nulls.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from pydantic import BaseModel, Field
from pyspark.sql import Column
from pyspark.sql import functions as F

from skewless_spark.aggregates.definition import NativeAggregate, number_required
from skewless_spark.key_text import canonical_text


def _anything(spark_type: str) -> str:
    del spark_type
    return ""


def _orderable(spark_type: str) -> str:
    return "a type that can be ordered" if spark_type.startswith(("map", "variant")) else ""


def _atomic(spark_type: str) -> str:
    return "a column that is no array, map or struct" if spark_type.startswith(("map", "array", "struct")) else ""


def _decimal(spark_type: str) -> tuple[int, int] | None:
    found = re.fullmatch(r"decimal\((\d+),\s*(\d+)\)", spark_type)
    return (int(found[1]), int(found[2])) if found else None


def _evaluate_sum(states: Sequence[Column], options: object, spark_type: str) -> Column:
    """Adding up sums widens a decimal once more than Spark's own ``sum`` does; narrow it back."""
    del options
    decimal = _decimal(spark_type)
    if decimal is None:
        return states[0]
    return states[0].cast(f"decimal({min(38, decimal[0] + 10)},{decimal[1]})")


def _evaluate_avg(states: Sequence[Column], options: object, spark_type: str) -> Column:
    """As Spark's ``avg``: a decimal gets four more digits, anything else is a double."""
    total, count = _evaluate_sum(states[:1], options, spark_type), states[1]
    decimal = _decimal(spark_type)
    if decimal is None:
        return F.try_divide(total.cast("double"), count)
    precision, scale = min(38, decimal[0] + 4), min(38, decimal[1] + 4)
    return F.try_divide(total, count).cast(f"decimal({precision},{scale})")


class DistinctOptions(BaseModel, extra="forbid", frozen=True, strict=True):
    """Options of ``approx_count_distinct``."""

    rsd: float = Field(default=0.02, ge=0.0017, le=0.25, description="Relative standard deviation.")

    @property
    def lg_k(self) -> int:
        """Buckets of the sketch, as a power of two: HLL's deviation is 1.04 / sqrt(2**lg_k).

        Flajolet et al. (2007), "HyperLogLog: the analysis of a near-optimal cardinality
        estimation algorithm".
        """
        return max(4, math.ceil(2 * math.log2(1.04 / self.rsd)))


def _evaluate_distinct(states: Sequence[Column], options: object, spark_type: str) -> Column:
    del options, spark_type
    return F.coalesce(F.hll_sketch_estimate(states[0]), F.lit(0).cast("bigint"))


def _first_state(states: Sequence[Column], options: object, spark_type: str) -> Column:
    del options, spark_type
    return states[0]


COUNT = NativeAggregate(
    "count",
    accepts=_anything,
    update=lambda argument, _: (F.count(argument),),
    merge=lambda states, _: (F.sum(states[0]),),
    evaluate=_first_state,
    needs_column=False,
)
SUM = NativeAggregate(
    "sum",
    accepts=number_required,
    update=lambda argument, _: (F.sum(argument),),
    merge=lambda states, _: (F.sum(states[0]),),
    evaluate=_evaluate_sum,
)
MIN = NativeAggregate(
    "min",
    accepts=_orderable,
    update=lambda argument, _: (F.min(argument),),
    merge=lambda states, _: (F.min(states[0]),),
    evaluate=_first_state,
)
MAX = NativeAggregate(
    "max",
    accepts=_orderable,
    update=lambda argument, _: (F.max(argument),),
    merge=lambda states, _: (F.max(states[0]),),
    evaluate=_first_state,
)
AVG = NativeAggregate(
    "avg",
    accepts=number_required,
    update=lambda argument, _: (F.sum(argument), F.count(argument)),
    merge=lambda states, _: (F.sum(states[0]), F.sum(states[1])),
    evaluate=_evaluate_avg,
)
APPROX_COUNT_DISTINCT = NativeAggregate(
    "approx_count_distinct",
    accepts=_atomic,
    update=lambda argument, options: (F.hll_sketch_agg(argument, options.lg_k),),
    merge=lambda states, _: (F.hll_union_agg(states[0]),),
    evaluate=_evaluate_distinct,
    options=DistinctOptions,
)

NATIVE_AGGREGATES = (COUNT, SUM, MIN, MAX, AVG, APPROX_COUNT_DISTINCT)

#: Argument types that Spark's sketches take as they are.
_SKETCH_TYPES = ("int", "bigint")


def native_argument(definition: NativeAggregate, argument: Column, spark_type: str) -> Column:
    """The argument as the aggregate takes it.

    A sketch sees 64-bit hashes, because it takes no notice of empty strings; an average adds up
    doubles, as Spark's does, and so cannot overflow where a sum would.
    """
    if definition is AVG and _decimal(spark_type) is None:
        return argument.cast("double")
    if definition is APPROX_COUNT_DISTINCT and spark_type not in _SKETCH_TYPES:
        # The hash of null is a number like any other, but null is no value.
        return F.when(argument.isNotNull(), F.xxhash64(canonical_text(argument, spark_type)))
    return argument
