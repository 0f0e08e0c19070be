"""Native aggregates: states are typed columns, and no row leaves the JVM.

Names and options are those of Spark SQL. Every update sees null for a row that does not count, because it is beyond
the budget. Every function here ignores nulls or is told which rows count.
"""

from dataclasses import replace

from skewless_spark.aggregates.definition import NativeAggregate
from skewless_spark.aggregates.native import extremes, item_sketches, moments, quantiles, sums

SYNONYMS = {
    "mean": sums.AVG,
    "variance": moments.VAR_SAMP,
    "stddev": moments.STDDEV_SAMP,
    "std": moments.STDDEV_SAMP,
    "every": extremes.BOOL_AND,
    "some": extremes.BOOL_OR,
    "any": extremes.BOOL_OR,
    "first_value": extremes.FIRST,
    "last_value": extremes.LAST,
    "any_value": extremes.FIRST,
    "array_agg": extremes.COLLECT_LIST,
    "percentile_approx": quantiles.APPROX_PERCENTILE,
}

NATIVE_AGGREGATES: tuple[NativeAggregate, ...] = (
    sums.COUNT, sums.COUNT_IF, sums.HISTOGRAM, sums.SUM, sums.AVG, extremes.MIN, extremes.MAX, extremes.MAX_BY,
    extremes.MIN_BY, extremes.FIRST, extremes.LAST, moments.VAR_SAMP, moments.VAR_POP, moments.STDDEV_SAMP,
    moments.STDDEV_POP, moments.COVAR_SAMP, moments.COVAR_POP, moments.CORR, extremes.BOOL_AND, extremes.BOOL_OR,
    extremes.BIT_AND, extremes.BIT_OR, extremes.BIT_XOR, extremes.COLLECT_SET, extremes.COLLECT_LIST,
    extremes.COUNT_DISTINCT, item_sketches.APPROX_COUNT_DISTINCT, item_sketches.THETA_SKETCH_ESTIMATE,
    quantiles.APPROX_PERCENTILE, item_sketches.APPROX_TOP_K,
    *(replace(definition, name=name) for name, definition in SYNONYMS.items()),
)  # fmt: skip
