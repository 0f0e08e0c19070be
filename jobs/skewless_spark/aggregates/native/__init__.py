"""Native aggregates: states are typed columns, and no row leaves the JVM.

Names and options are those of Spark SQL. Every update sees null for a row that does not count, because it is beyond
the budget. Every function here ignores nulls or is told which rows count.
"""

from __future__ import annotations

from dataclasses import replace

from skewless_spark.aggregates.definition import NativeAggregate
from skewless_spark.aggregates.native.extremes import (
    BIT_AND,
    BIT_OR,
    BIT_XOR,
    BOOL_AND,
    BOOL_OR,
    COLLECT_LIST,
    COLLECT_SET,
    COUNT_DISTINCT,
    FIRST,
    LAST,
    MAX,
    MAX_BY,
    MIN,
    MIN_BY,
)
from skewless_spark.aggregates.native.item_sketches import APPROX_COUNT_DISTINCT, APPROX_TOP_K, THETA_SKETCH_ESTIMATE
from skewless_spark.aggregates.native.moments import (
    CORR,
    COVAR_POP,
    COVAR_SAMP,
    STDDEV_POP,
    STDDEV_SAMP,
    VAR_POP,
    VAR_SAMP,
)
from skewless_spark.aggregates.native.quantiles import APPROX_PERCENTILE
from skewless_spark.aggregates.native.sums import AVG, COUNT, COUNT_IF, HISTOGRAM, SUM

#: Synonyms in Spark SQL.
SYNONYMS = {
    "mean": AVG,
    "variance": VAR_SAMP,
    "stddev": STDDEV_SAMP,
    "std": STDDEV_SAMP,
    "every": BOOL_AND,
    "some": BOOL_OR,
    "any": BOOL_OR,
    "first_value": FIRST,
    "last_value": LAST,
    "any_value": FIRST,
    "array_agg": COLLECT_LIST,
    "percentile_approx": APPROX_PERCENTILE,
}

NATIVE_AGGREGATES: tuple[NativeAggregate, ...] = (
    COUNT, COUNT_IF, HISTOGRAM, SUM, AVG, MIN, MAX, MAX_BY, MIN_BY, FIRST, LAST,
    VAR_SAMP, VAR_POP, STDDEV_SAMP, STDDEV_POP, COVAR_SAMP, COVAR_POP, CORR,
    BOOL_AND, BOOL_OR, BIT_AND, BIT_OR, BIT_XOR, COLLECT_SET, COLLECT_LIST, COUNT_DISTINCT,
    APPROX_COUNT_DISTINCT, THETA_SKETCH_ESTIMATE, APPROX_PERCENTILE, APPROX_TOP_K,
    *(replace(definition, name=name) for name, definition in SYNONYMS.items()),
)  # fmt: skip
