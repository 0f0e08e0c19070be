"""Counts: of values, of rows where a condition holds, and of values between edges."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Self

from pydantic import Field, model_validator
from pyspark.sql import Column
from pyspark.sql import functions as F

from skewless.aggregates.argument_types import anything, boolean_required, number_required
from skewless.document import unmet
from skewless_spark.aggregates.definition import Arguments, NativeAggregate
from skewless_spark.aggregates.native.simple_states import Options, merged_by, negated, the_state

COUNT = NativeAggregate(
    "count",
    accepts=anything,
    update=lambda arguments, _: (F.count(arguments.columns[0]),),
    merge=merged_by(F.sum),
    evaluate=the_state,
    needs_column=False,
    combines_exactly=lambda _: True,
    invertible=lambda _: True,
    inverse=negated,
)
COUNT_IF = NativeAggregate(
    "count_if",
    accepts=boolean_required,
    update=lambda arguments, _: (F.count_if(arguments.columns[0]),),
    merge=merged_by(F.sum),
    evaluate=the_state,
    combines_exactly=lambda _: True,
    invertible=lambda _: True,
    inverse=negated,
)


class HistogramOptions(Options):
    """Options of ``histogram``."""

    #: Each bin is a state column; for more bins than this, a sketch is the better tool.
    edges: list[float] = Field(min_length=1, max_length=64, description="Where one bin ends and the next begins.")

    @model_validator(mode="after")
    def _ascending(self) -> Self:
        if not all(low < high for low, high in itertools.pairwise(self.edges)):
            raise unmet("edges that ascend", str(self.edges)[:120])
        return self

    @property
    def bins(self) -> list[tuple[float, float]]:
        """The lower edge (inclusive) and upper edge (exclusive) of every bin; the two outer bins are unbounded."""
        return list(itertools.pairwise([-math.inf, *self.edges, math.inf]))


def _update_histogram(arguments: Arguments, options: HistogramOptions) -> list[Column]:
    """One count per bin. Spark sorts NaN above infinity, but NaN lies in no bin."""
    value = arguments.columns[0].cast("double")
    first, *inner, last = options.bins
    bins = [
        value < first[1],
        *((value >= low) & (value < high) for low, high in inner),
        (value >= last[0]) & ~F.isnan(value),
    ]
    return [F.count_if(inside) for inside in bins]


def _evaluate_histogram(states: Sequence[Column], options: HistogramOptions, spark_type: str) -> Column:
    del spark_type
    bins = [
        F.struct(F.lit(low).alias("lower"), F.lit(high).alias("upper"), count.alias("count"))
        for (low, high), count in zip(options.bins, states, strict=True)
    ]
    return F.array(*bins)


HISTOGRAM = NativeAggregate(
    "histogram",
    accepts=number_required,
    update=_update_histogram,
    merge=merged_by(F.sum),
    evaluate=_evaluate_histogram,
    options=HistogramOptions,
    state_bytes=64,
    invertible=lambda _: True,
    inverse=negated,
    any_order=True,
)
