"""Approximate numbers of distinct values, by sketches of fixed size.

Sketches are of hashes, which are faster than texts, and count empty texts. Those that are published are of the values
themselves, so that they can be merged with sketches that others made.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import reduce

from pydantic import Field
from pyspark.sql import Column
from pyspark.sql import functions as F

from skewless.aggregates.argument_types import INTEGRAL_TYPES, atomic_required, one_of_required
from skewless_spark.aggregates.definition import Arguments, NativeAggregate
from skewless_spark.aggregates.keys import canonical_text
from skewless_spark.aggregates.native.counts import Options, of_state, publishing

#: Argument types that Spark's sketches take without hashing.
_SKETCH_TYPES = ("int", "bigint")


def _hashed(arguments: Arguments) -> Column:
    """The argument as a 64-bit hash, because Spark's sketches ignore empty strings."""
    (value,), (spark_type,) = arguments.columns, arguments.spark_types
    if spark_type in _SKETCH_TYPES:
        return value
    # Spark hashes null to a number like any other, but null is not a value.
    text = F.expr(canonical_text(arguments.names[0], spark_type))
    return F.when(value.isNotNull(), F.xxhash64(text))


def as_is(arguments: Arguments) -> Column:
    """The argument as DataSketches takes it: all integers as 64 bits."""
    (value,), (spark_type,) = arguments.columns, arguments.spark_types
    return value.cast("bigint") if spark_type in INTEGRAL_TYPES else value


class DistinctOptions(Options):
    """Options of ``approx_count_distinct``."""

    rsd: float = Field(default=0.02, ge=0.0017, le=0.25, description="Relative standard deviation.")

    @property
    def lg_k(self) -> int:
        """The binary logarithm of the number of buckets: the deviation of HLL is 1.04 / sqrt(2**lg_k).

        Flajolet et al. (2007), "HyperLogLog: the analysis of a near-optimal cardinality
        estimation algorithm".
        """
        return max(4, math.ceil(2 * math.log2(1.04 / self.rsd)))


class ThetaOptions(Options):
    """Options of ``theta_sketch_estimate``."""

    lg_nom_entries: int = Field(
        default=12, ge=4, le=26, description="Values that a full sketch keeps, as a power of 2."
    )


def _hll_count(sketch: Column) -> Column:
    return F.coalesce(F.hll_sketch_estimate(sketch), F.lit(0).cast("bigint"))


def _theta_count(sketch: Column) -> Column:
    return F.coalesce(F.theta_sketch_estimate(sketch), F.lit(0).cast("bigint"))


#: Two results of the same values may each be off by so many standard deviations.
_DEVIATIONS = 3


def _near(result: Column, other: Column, deviation: float) -> Column:
    return F.abs(result - other) <= F.floor((result + other) * (_DEVIATIONS * deviation))


def _agree_theta(result: Column, states: Sequence[Column], options: ThetaOptions, *_: object) -> Column:
    """Exact as long as all values fit into the sketch."""
    other, entries = _theta_count(states[0]), 1 << options.lg_nom_entries
    sampled = F.greatest(result, other) >= entries
    return (result == other) | (sampled & _near(result, other, entries**-0.5))


def _same_values_hll(result: Column, states: Sequence[Column], *_: object) -> Column:
    """Whether two sketches are of the same values, as far as they know: neither adds anything to the other.

    An estimate depends on the order in which a sketch was made, but that of a union does not.
    """

    def merged(one: Column, other: Column) -> Column:
        return F.hll_sketch_estimate(F.hll_union(one, other, True))

    both = merged(result, states[0])
    return reduce(Column.__and__, (merged(one, one) == both for one in (result, states[0])))


def _same_values_theta(result: Column, states: Sequence[Column], *_: object) -> Column:
    """Whether neither of two sketches has a value that the other lacks, among those that both would have."""
    pairs = ((result, states[0]), (states[0], result))
    return reduce(Column.__and__, (F.theta_sketch_estimate(F.theta_difference(*pair)) == 0 for pair in pairs))


def _shown_by(estimate: Callable[[Column], Column]) -> Callable[[Column, object, str], Column]:
    return lambda result, _, __: F.concat(F.lit("a sketch of about "), estimate(result), F.lit(" values"))


APPROX_COUNT_DISTINCT = NativeAggregate(
    "approx_count_distinct",
    accepts=atomic_required,
    update=lambda arguments, options: (F.hll_sketch_agg(_hashed(arguments), options.lg_k),),
    merge=lambda states, _, __: (F.hll_union_agg(states[0]),),
    evaluate=of_state(_hll_count),
    options=DistinctOptions,
    state_bytes=200,
    any_order=True,
    agrees=lambda result, states, options, *_: _near(result, _hll_count(states[0]), options.rsd),
)
APPROX_COUNT_DISTINCT = publishing(
    APPROX_COUNT_DISTINCT,
    accepts=one_of_required("string", "binary"),
    update=lambda arguments, options: (F.hll_sketch_agg(as_is(arguments), options.lg_k),),
    agrees=_same_values_hll,
    shown=_shown_by(F.hll_sketch_estimate),
)
THETA_SKETCH_ESTIMATE = NativeAggregate(
    "theta_sketch_estimate",
    accepts=atomic_required,
    update=lambda arguments, options: (F.theta_sketch_agg(_hashed(arguments), options.lg_nom_entries),),
    merge=lambda states, options, _: (F.theta_union_agg(states[0], options.lg_nom_entries),),
    evaluate=of_state(_theta_count),
    options=ThetaOptions,
    state_bytes=100,
    any_order=True,
    agrees=_agree_theta,
)
THETA_SKETCH_ESTIMATE = publishing(
    THETA_SKETCH_ESTIMATE,
    accepts=one_of_required("float", "double", "string", "binary"),
    update=lambda arguments, options: (F.theta_sketch_agg(as_is(arguments), options.lg_nom_entries),),
    agrees=_same_values_theta,
    shown=_shown_by(F.theta_sketch_estimate),
)
