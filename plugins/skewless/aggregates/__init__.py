"""Aggregates in Python: what one is, how one is found by its name, and those that are shipped.

What somebody writes who brings an aggregate is all here; see ``docs/write_an_aggregate.md``.
Nothing in here knows Spark.
"""

from skewless.aggregates.accumulator import (
    Accumulator,
    ArrowTypes,
    GroupsAccumulator,
    PerKey,
    anything,
    number_required,
)
from skewless.aggregates.python_aggregate import (
    ENTRY_POINT_GROUP,
    Argument,
    NoOptions,
    PythonAggregate,
    RegisteredAggregates,
)

__all__ = [
    "ENTRY_POINT_GROUP",
    "Accumulator",
    "Argument",
    "ArrowTypes",
    "GroupsAccumulator",
    "NoOptions",
    "PerKey",
    "PythonAggregate",
    "RegisteredAggregates",
    "anything",
    "number_required",
]
