"""Figures of the result's columns, computed by the query that Great Expectations runs over it anyway."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import NumericType

from skewless.documents.job import Job

#: Aggregates that give a number for every key, even for a key without a value.
NEVER_NULL = frozenset({"count", "count_if", "count_distinct", "approx_count_distinct", "theta_sketch_estimate"})
#: Of more aggregates only the first have figures.
MOST_COLUMNS = 30


def figure_columns(job: Job, frame: DataFrame) -> dict[str, Column]:
    """What is computed of each aggregate, under names of ours: its nulls and, of numbers, the mean."""
    found = {}
    for at, (name, call) in enumerate(list(job.spec.aggregates.items())[:MOST_COLUMNS]):
        column = F.col(f"`{name.replace('`', '``')}`")
        if call.function not in NEVER_NULL:
            found[f"nulls_{at}"] = F.count_if(column.isNull())
        if isinstance(frame.schema[name].dataType, NumericType):
            found[f"mean_{at}"] = F.avg(column.cast("double"))
    return found


def column_figures(job: Job, found: Mapping[str, Any]) -> dict[str, tuple[int | None, float | None]]:
    """By aggregate, how many keys have none, and its mean; None where it was not computed, or is no number."""
    told = {}
    for at, name in enumerate(job.spec.aggregates):
        nulls, mean = found.get(f"nulls_{at}"), found.get(f"mean_{at}")
        told[name] = (nulls, mean if mean is not None and math.isfinite(mean) else None)
    return told
