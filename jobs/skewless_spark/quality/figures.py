"""Figures of the result's columns, which later nights are compared with."""

from __future__ import annotations

import math

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import NumericType

from skewless.documents.job import Job
from skewless_spark.sources.uris import quoted

#: Aggregates that give a number for every key, even for a key without a value.
NEVER_NULL = frozenset({"count", "count_if", "count_distinct", "approx_count_distinct", "theta_sketch_estimate"})
#: Of more aggregates only the first have figures.
MOST_COLUMNS = 30


def column_figures(job: Job, frame: DataFrame) -> dict[str, tuple[int | None, float | None]]:
    """By aggregate, how many keys have none, and its mean; None where it was not computed, or is no number."""
    wanted = {}
    for at, (name, call) in enumerate(list(job.spec.aggregates.items())[:MOST_COLUMNS]):
        column = F.col(quoted(name))
        if call.function not in NEVER_NULL:
            wanted[f"nulls_{at}"] = F.count_if(column.isNull())
        if isinstance(frame.schema[name].dataType, NumericType):
            wanted[f"mean_{at}"] = F.avg(column.cast("double"))
    row = frame.agg(*(column.alias(name) for name, column in wanted.items())).collect()[0].asDict() if wanted else {}
    means = {name: row.get(f"mean_{at}") for at, name in enumerate(job.spec.aggregates)}
    return {
        name: (row.get(f"nulls_{at}"), mean if (mean := means[name]) is not None and math.isfinite(mean) else None)
        for at, name in enumerate(job.spec.aggregates)
    }
