"""The Python aggregate of a cell inside ``mapInArrow``, as an engineer would write it who has the aggregate.

All peers that are given here use our own accumulators and key index: what is compared is where rows go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from benchmarks.spark.cell import TOTAL, Cell, Place
from benchmarks.spark.datasets import files_of
from skewless.aggregates import GroupsAccumulator
from skewless_spark.aggregates import REGISTRY, PythonAggregate
from skewless_spark.aggregates.keys import KeyIndex

Batches = Iterable[pa.RecordBatch]
Mapper = Callable[[Batches], Iterator[pa.RecordBatch]]

STATE_SCHEMA = "key string, state bigint"
RESULT_SCHEMA = f"key string, {TOTAL} bigint"


class Call(NamedTuple):
    """The aggregate of a cell as it travels to the workers: by name and plain options."""

    function: str
    options: dict[str, Any]

    @classmethod
    def of(cls, cell: Cell) -> Call:
        """That of a cell."""
        given: Mapping[str, Any] = cell.call
        options = {name: value for name, value in given.items() if name not in {"function", "column"}}
        return cls(given["function"], options)

    def accumulator(self) -> GroupsAccumulator:
        """A fresh one."""
        definition = REGISTRY[self.function]
        if not isinstance(definition, PythonAggregate):
            raise TypeError(f"{self.function} is no Python aggregate")
        return definition.accumulator(definition.options.model_validate(self.options))


def read(spark: SparkSession, place: Place) -> DataFrame:
    """The rows of the input."""
    return spark.read.parquet(*files_of(place.input))


def partial(call: Call) -> Mapper:
    """Rows to one state per key of the task."""
    return _reducer(call, "state", lambda accumulator: accumulator.state())


def whole(call: Call) -> Mapper:
    """Rows to one result per key of the task: where each key is in one task."""
    return _reducer(call, TOTAL, lambda accumulator: accumulator.evaluate())


def _reducer(call: Call, name: str, outcome: Callable[[GroupsAccumulator], pa.Array]) -> Mapper:
    def reduce(batches: Batches) -> Iterator[pa.RecordBatch]:
        index, accumulator = KeyIndex(), call.accumulator()
        names: list[pa.Array] = []
        for batch in batches:
            first = len(index)
            groups, new_rows = index.number(batch.column("key"))
            if len(new_rows):
                names.append(batch.column("key").take(pa.array(new_rows)))
                accumulator.open_keys(names[-1], first)
            accumulator.update(batch.column("value"), groups, len(index))
        if len(index):
            found = outcome(accumulator)
            accumulator.close_keys()
            yield pa.RecordBatch.from_arrays([pa.concat_arrays(names), found], names=["key", name])

    return reduce


def merged(call: Call) -> Mapper:
    """States to one result per key: merging sets up no keys."""

    def merge(batches: Batches) -> Iterator[pa.RecordBatch]:
        index, accumulator = KeyIndex(), call.accumulator()
        names: list[pa.Array] = []
        for batch in batches:
            groups, new_rows = index.number(batch.column("key"))
            names.append(batch.column("key").take(pa.array(new_rows)))
            accumulator.merge(batch.column("state"), groups, len(index))
        if len(index):
            yield pa.RecordBatch.from_arrays([pa.concat_arrays(names), accumulator.evaluate()], names=["key", TOTAL])

    return merge


def two_phases(rows: DataFrame, cell: Cell, place: Place) -> None:
    """States where the rows are, merged by key, written."""
    call = Call.of(cell)
    states = rows.mapInArrow(partial(call), STATE_SCHEMA)
    results = states.repartition(cell.slots, "key").mapInArrow(merged(call), RESULT_SCHEMA)
    results.write.parquet(str(place.output))
