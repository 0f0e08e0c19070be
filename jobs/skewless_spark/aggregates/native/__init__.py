"""Native aggregates: states are typed columns, and no row leaves the JVM.

Names and options are those of Spark SQL. Every update sees null for a row that does not count, because it is beyond
the budget. Every function here ignores nulls or is told which rows count.
"""

from dataclasses import replace

from skewless.query import functions
from skewless_spark.aggregates.definition import NativeAggregate
from skewless_spark.aggregates.native import extremes, item_sketches, moments, quantiles, spark_calls, sums

_OWN: tuple[NativeAggregate, ...] = (
    sums.COUNT, sums.COUNT_IF, sums.HISTOGRAM, sums.SUM, sums.AVG, sums.TRY_SUM, sums.TRY_AVG, extremes.MIN,
    extremes.MAX, extremes.MAX_BY, extremes.MIN_BY, extremes.FIRST, extremes.LAST, moments.VAR_SAMP, moments.VAR_POP,
    moments.STDDEV_SAMP, moments.STDDEV_POP, moments.SKEWNESS, moments.KURTOSIS, moments.COVAR_SAMP, moments.COVAR_POP,
    moments.CORR, *moments.REGRESSIONS, extremes.BOOL_AND, extremes.BOOL_OR, extremes.BIT_AND, extremes.BIT_OR,
    extremes.BIT_XOR, extremes.COLLECT_SET, extremes.COLLECT_LIST, extremes.COUNT_DISTINCT, extremes.SUM_DISTINCT,
    extremes.AVG_DISTINCT, item_sketches.APPROX_COUNT_DISTINCT, item_sketches.THETA_SKETCH_ESTIMATE,
    quantiles.APPROX_PERCENTILE, item_sketches.APPROX_TOP_K, spark_calls.SPARK,
)  # fmt: skip
SYNONYMS = {name: next(one for one in _OWN if one.name == ours) for name, ours in functions.SYNONYMS.items()}
NATIVE_AGGREGATES = (*_OWN, *(replace(definition, name=name) for name, definition in SYNONYMS.items()))
