"""Approximate numbers of distinct values and the most frequent values, by sketches.

Sketches are of hashes, which are faster than texts, and count empty texts. Those that are published are of the values
themselves, so that they can be merged with sketches that others made.

Anderson et al. (2017), "A high-performance algorithm for identifying frequent items in data streams".
"""

import math
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Self

from pydantic import Field, model_validator
from pyspark.sql import Column
from pyspark.sql import functions as F

from skewless.aggregates.accumulator import INTEGRAL_TYPES, atomic_required, one_of_required, top_k_item_required
from skewless.document import unmet
from skewless_spark.aggregates.definition import Arguments, NativeAggregate
from skewless_spark.aggregates.keys import canonical_text
from skewless_spark.aggregates.native.sums import Options, of_state, publishing
from skewless_spark.session.versions import combine_top_k

#: Argument types that Spark's sketches take without hashing.
_SKETCH_TYPES = ("int", "bigint")


def _hashed(arguments: Arguments) -> Column:
    """The argument as a 64-bit hash, because Spark's sketches ignore empty strings."""
    (value,), (spark_type,) = arguments.columns, arguments.spark_types
    if spark_type in _SKETCH_TYPES:
        return value
    # A number by its bits, of which zero has one form: Java 21 writes some numbers otherwise than Java 17.
    bits = spark_type in {"float", "double"}
    hashed = value if bits else F.expr(canonical_text(arguments.names[0], spark_type))
    # Spark hashes null to a number like any other, but null is not a value.
    return F.when(value.isNotNull(), F.xxhash64(hashed))


def as_is(arguments: Arguments) -> Column:
    """The argument as DataSketches takes it: all integers as 64 bits."""
    (value,), (spark_type,) = arguments.columns, arguments.spark_types
    return value.cast("bigint") if spark_type in INTEGRAL_TYPES else value


class DistinctOptions(Options):
    """Options of ``approx_count_distinct``."""

    rsd: float = Field(default=0.02, ge=0.0017, le=0.25)
    """Relative standard deviation."""

    @property
    def lg_k(self) -> int:
        """The binary logarithm of the number of buckets: the deviation of HLL is 1.04 / sqrt(2**lg_k).

        Flajolet et al. (2007), "HyperLogLog: the analysis of a near-optimal cardinality
        estimation algorithm".
        """
        return max(4, math.ceil(2 * math.log2(1.04 / self.rsd)))


class ThetaOptions(Options):
    """Options of ``theta_sketch_estimate``."""

    lg_nom_entries: int = Field(default=12, ge=4, le=26)
    """Values that a full sketch keeps, as a power of 2."""


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


def _shown_by(estimate: str) -> Callable[[Column, object, str], Column]:
    about = "a sketch of about "
    return lambda result, _, __: F.concat(F.lit(about), F.call_function(estimate, result), F.lit(" values"))


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
    shown=_shown_by("hll_sketch_estimate"),
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
    shown=_shown_by("theta_sketch_estimate"),
)


class ItemsOptions(Options):
    """Options of ``approx_top_k`` with ``publish: state``."""

    max_items_tracked: int = Field(default=10_000, ge=1, le=1_000_000)
    """Values that a sketch keeps; with no more counts are exact."""


class TopKOptions(ItemsOptions):
    """Options of ``approx_top_k``."""

    k: int = Field(default=5, ge=1, le=100_000)
    """Values in the result, at most."""

    @model_validator(mode="after")
    def _tracked(self) -> Self:
        if self.k > self.max_items_tracked:
            raise unmet("k <= max_items_tracked", f"{self.k} and {self.max_items_tracked}")
        return self


# These functions treat null as a value like any other, in a row and as a state. FILTER exists only in SQL.


def _update(arguments: Arguments, options: ItemsOptions) -> tuple[Column]:
    items = f"approx_top_k_accumulate({arguments.names[0]}, {options.max_items_tracked})"
    return (F.expr(f"{items} FILTER (WHERE {arguments.counts})"),)


def _merge(states: Sequence[str], options: ItemsOptions, spark_type: str) -> tuple[Column]:
    return (F.expr(combine_top_k(states[0], options.max_items_tracked, spark_type)),)


def _evaluate(states: Sequence[Column], options: TopKOptions, _spark_type: str) -> Column:
    return F.call_function("approx_top_k_estimate", states[0], F.lit(options.k))


#: Times the rows, by the values that a sketch keeps: how much a count is off at most (see docs/aggregates.md).
_OFF = 2.7


def _agree(result: Column, states: Sequence[Column], options: TopKOptions, spark_type: str, rows: Column) -> Column:
    """Whether no count is off by more than both errors. A value that one result lacks has at most its least count."""
    other, kept = _evaluate(states, options, spark_type), options.max_items_tracked
    off = F.when(rows <= kept, 0).otherwise(F.floor(rows * (2 * _OFF / kept)))

    def each(these: Column, those: Column) -> Column:
        least = F.when(F.size(those) < options.k, 0).otherwise(F.array_min(those.getField("count")))

        def near(one: Column) -> Column:
            same = F.filter(those, lambda two: two["item"].eqNullSafe(one["item"]))
            there = F.abs(one["count"] - F.get(same, F.lit(0))["count"]) <= off
            return F.when(F.size(same) > 0, there).otherwise(one["count"] <= least + off)

        return F.forall(these, near)

    return each(result, other) & each(other, result)


APPROX_TOP_K = NativeAggregate(
    "approx_top_k",
    accepts=top_k_item_required,
    update=_update,
    merge=_merge,
    evaluate=_evaluate,
    options=TopKOptions,
    state_bytes=200,
    any_order=True,
    agrees=_agree,
)

# What is published is DataSketches' own. Spark appends how many nulls there were: a text of 8 bytes, here of zeros.
_NULLS = bytes(8)


def _kind(spark_type: str) -> str:
    return "bigint" if spark_type in INTEGRAL_TYPES else spark_type


def _update_plain(arguments: Arguments, options: ItemsOptions) -> tuple[Column]:
    (name,), (spark_type,) = arguments.names, arguments.spark_types
    items = f"approx_top_k_accumulate(CAST({name} AS {_kind(spark_type)}), {options.max_items_tracked})"
    return (F.expr(f"{items} FILTER (WHERE {arguments.counts} AND {name} IS NOT NULL)"),)


def _bytes(states: Sequence[Column], _options: ItemsOptions, _spark_type: str) -> Column:
    sketch = states[0]["sketch"]
    return F.substring(sketch, F.lit(1), F.octet_length(sketch) - len(_NULLS))


def _state(result: Column, options: ItemsOptions, spark_type: str) -> Column:
    fields = {
        "sketch": F.concat(result, F.lit(_NULLS)),
        "maxItemsTracked": F.lit(options.max_items_tracked),
        "itemDataType": F.lit(None).cast(_kind(spark_type)),
        "itemDataTypeDDL": F.lit(f"item {_kind(spark_type)}"),
    }
    return F.when(result.isNotNull(), F.struct(*(field.alias(name) for name, field in fields.items())))


#: Two sketches are compared by so many of their most frequent values (Spark reads both anew for each of them), and a
#: report shows so many.
_COMPARED, _SHOWN = 20, 3


def _like_items(
    result: Column, states: Sequence[Column], options: ItemsOptions, spark_type: str, rows: Column
) -> Column:
    tracked = options.max_items_tracked
    most = TopKOptions(k=min(_COMPARED, tracked), max_items_tracked=tracked)
    return _agree(_evaluate([_state(result, options, spark_type)], most, spark_type), states, most, spark_type, rows)


def _shown(result: Column, options: ItemsOptions, spark_type: str) -> Column:
    few = F.lit(min(_SHOWN, options.max_items_tracked))
    few = F.call_function("approx_top_k_estimate", _state(result, options, spark_type), few)
    return F.concat(F.lit("a sketch with "), F.to_json(few))


APPROX_TOP_K = publishing(
    APPROX_TOP_K,
    accepts=one_of_required("string"),
    update=_update_plain,
    merge=lambda states, options, spark_type: _merge(states, options, _kind(spark_type)),
    evaluate=_bytes,
    options=ItemsOptions,
    agrees=_like_items,
    shown=_shown,
)
