"""Aggregates in Python: what one is, how one is found by its name, and those that are shipped.

What somebody writes who brings an aggregate is all here; see ``docs/write_an_aggregate.md``.
Nothing in here knows Spark.
"""

from __future__ import annotations

from skewless.aggregates.accumulator import Accumulator, ArrowTypes, GroupsAccumulator
from skewless.aggregates.argument_types import anything, number_required
from skewless.aggregates.per_key import PerKey
from skewless.aggregates.python_aggregate import Argument, NoOptions, PythonAggregate
from skewless.aggregates.registered import ENTRY_POINT_GROUP, RegisteredAggregates

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
