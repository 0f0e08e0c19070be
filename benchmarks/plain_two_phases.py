"""``python -m benchmarks.plain_two_phases INPUT OUTPUT``: the job of J5 by hand, of who has the aggregate."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from benchmarks.plain_formats import mark
from skewless.aggregates import GroupsAccumulator
from skewless_spark.aggregates import REGISTRY, PythonAggregate
from skewless_spark.aggregates.keys import KeyIndex

FUNCTION = "value_counts"

Batches = Iterable[pa.RecordBatch]


def _accumulator() -> GroupsAccumulator:
    definition = REGISTRY[FUNCTION]
    if not isinstance(definition, PythonAggregate):
        raise TypeError(FUNCTION)
    return definition.accumulator(definition.options())


def _reducer(
    column: str, finish: Callable[[Any], pa.Array], name: str
) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """States of rows, or results of states, with counts, one for each key of a task."""

    def reduce(batches: Batches) -> Iterator[pa.RecordBatch]:
        index, accumulator, counts = KeyIndex(), _accumulator(), np.zeros(0, dtype=np.int64)
        for batch in batches:
            groups, _ = index.number(batch.column("key"))
            weights = batch.column("n").to_numpy() if column == "state" else None
            more = np.bincount(groups, weights, len(index)).astype(np.int64)
            counts = more + np.pad(counts, (0, len(more) - len(counts)))
            take = accumulator.merge if column == "state" else accumulator.update
            take(batch.column(column), groups, len(index))
        if len(index):
            arrays = [index.keys, pa.array(counts), finish(accumulator)]
            yield pa.RecordBatch.from_arrays(arrays, names=["key", "n", name])

    return reduce


def by_hand(source: str, output: str) -> None:
    """The job by hand, in plain PySpark; the time is told after each part."""
    mark("start, import")
    builder = SparkSession.builder.master("local[*]").appName("two phases")
    spark = builder.config("spark.ui.enabled", "false").config("spark.driver.memory", "2g").getOrCreate()
    mark("start Spark")
    first = _reducer("value", lambda accumulator: accumulator.state(), "state")
    second = _reducer("state", lambda accumulator: accumulator.evaluate(), "values")
    counted = "key string, n bigint, {} array<struct<value: string, count: bigint>>"
    states = spark.read.parquet(source).mapInArrow(first, counted.format("state"))
    slots = spark.sparkContext.defaultParallelism
    states.repartition(slots, "key").mapInArrow(second, counted.format("`values`")).write.parquet(output)
    mark("query")
    spark.stop()


if __name__ == "__main__":
    by_hand(*sys.argv[1:])
