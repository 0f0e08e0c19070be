"""The aggregates a spec can name, and their binding to the columns of an input."""

from skewless.aggregates.python_aggregate import PythonAggregate, RegisteredAggregates
from skewless_spark.aggregates.definition import Aggregate, AggregateRegistry, NativeAggregate
from skewless_spark.aggregates.native import NATIVE_AGGREGATES

#: Every aggregate by its name: the native ones, and those in Python that installed packages register.
REGISTRY = AggregateRegistry(NATIVE_AGGREGATES, RegisteredAggregates())

__all__ = ["REGISTRY", "Aggregate", "AggregateRegistry", "NativeAggregate", "PythonAggregate"]
