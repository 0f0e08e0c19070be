"""The aggregates a spec can name, and their binding to the columns of an input."""

from __future__ import annotations

from skewless_spark.aggregates.definition import NativeAggregate, PythonAggregate
from skewless_spark.aggregates.native import NATIVE_AGGREGATES
from skewless_spark.aggregates.streaming_histogram import STREAMING_HISTOGRAM

Aggregate = NativeAggregate | PythonAggregate

_ALL: tuple[Aggregate, ...] = (*NATIVE_AGGREGATES, STREAMING_HISTOGRAM)

#: Every aggregate by its name. Nothing is ever imported by a string from a spec.
REGISTRY: dict[str, Aggregate] = {one.name: one for one in _ALL}
