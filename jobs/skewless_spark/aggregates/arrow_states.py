"""Python aggregates inside Spark: Arrow batches in, Arrow states out, one pass per task."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import BaseModel

from skewless.aggregates.accumulator import ArrowTypes, GroupsAccumulator
from skewless.aggregates.python_aggregate import PythonAggregate
from skewless.errors import AggregateError
from skewless_spark.aggregates import REGISTRY
from skewless_spark.aggregates.binding import BoundAggregate
from skewless_spark.aggregates.key_index import KeyIndex

Batches = Iterable[pa.RecordBatch]


class PythonCall(NamedTuple):
    """One Python aggregate of a job, as it travels to the workers: by name and plain options.

    Attributes:
        name: the result column.
        function: its name in the registry.
        options: its options as JSON values.
        spark_types: Spark SQL types of its argument columns.
        argument: the column of the batches that holds its argument.
        state: the column that holds its states.
    """

    name: str
    function: str
    options: dict[str, object]
    spark_types: tuple[str, ...]
    argument: str
    state: str

    @property
    def definition(self) -> PythonAggregate:
        """What the registry knows under its name."""
        definition = REGISTRY[self.function]
        if not isinstance(definition, PythonAggregate):
            raise AggregateError(f"aggregate {self.name!r}", "a Python aggregate", f"the native {self.function}")
        return definition

    def accumulator(self) -> GroupsAccumulator:
        """A fresh one."""
        definition = self.definition
        return definition.accumulator(definition.options.model_validate(self.options), self.spark_types)

    @property
    def types(self) -> ArrowTypes:
        """Its Arrow types."""
        definition = self.definition
        return definition.types(definition.options.model_validate(self.options), self.spark_types)


def python_call(one: BoundAggregate, state: str) -> PythonCall:
    """How a bound aggregate travels."""
    options: BaseModel = one.options
    return PythonCall(one.name, one.definition.name, options.model_dump(), one.spark_types, f"a_{state}", state)


def reduce_batches(calls: Sequence[PythonCall], keys: Sequence[str]) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """For ``mapInArrow``: reduce the rows of one task to one row of states per key.

    The batches hold ``task``, ``route_key``, the key columns and the arguments. What comes out
    holds ``task``, the key columns, ``python_rows`` and a state column per call.
    """

    def reduce(batches: Batches) -> Iterator[pa.RecordBatch]:
        index = KeyIndex()
        accumulators = [call.accumulator() for call in calls]
        # A cast changes no value, but a timestamp comes labelled with the session's time zone.
        argument_types = [call.types.argument for call in calls]
        firsts: list[pa.RecordBatch] = []
        rows = np.zeros(0, dtype=np.int64)
        for batch in batches:
            groups, new_rows = index.number(batch.column("route_key"))
            if len(new_rows):
                firsts.append(batch.select(["task", *keys]).take(pa.array(new_rows)))
            rows = _counted(rows, groups, len(index))
            for call, kind, accumulator in zip(calls, argument_types, accumulators, strict=True):
                accumulator.update(batch.column(call.argument).cast(kind), groups, len(index))
        if firsts:
            labels = pa.Table.from_batches(firsts).combine_chunks().to_batches()[0]
            states = [
                _checked(call, acc.state(), len(index), "state") for call, acc in zip(calls, accumulators, strict=True)
            ]
            names = ["task", *keys, "python_rows", *(call.state for call in calls)]
            yield pa.RecordBatch.from_arrays([*labels.columns, pa.array(rows), *states], names=names)

    return reduce


def evaluate_batches(
    calls: Sequence[PythonCall], passed: Sequence[str]
) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """For ``mapInArrow``: merge each key's list of states and evaluate it.

    The batches hold one row per key: the ``passed`` columns and ``states``, a list of structs
    with a field per call. What comes out holds the passed columns and a result per call.
    """

    def evaluate(batches: Batches) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            states = batch.column("states")
            flat = states.flatten()
            groups = _parents(states)
            results = []
            for call in calls:
                accumulator = call.accumulator()
                accumulator.merge(flat.field(call.state).cast(call.types.state), groups, batch.num_rows)
                results.append(_checked(call, accumulator.evaluate(), batch.num_rows, "result"))
            columns = [*(batch.column(name) for name in passed), *results]
            yield pa.RecordBatch.from_arrays(columns, names=[*passed, *(call.name for call in calls)])

    return evaluate


def _parents(lists: pa.ListArray) -> npt.NDArray[np.int64]:
    lengths = lists.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    return np.repeat(np.arange(len(lists), dtype=np.int64), lengths)


def _counted(rows: npt.NDArray[np.int64], groups: npt.NDArray[np.int64], total: int) -> npt.NDArray[np.int64]:
    counts = np.bincount(groups, minlength=total).astype(np.int64)
    counts[: len(rows)] += rows
    return counts


def _checked(call: PythonCall, array: pa.Array, groups: int, what: str) -> pa.Array:
    """Hold an accumulator to its contract: one value per group, of the declared type."""
    declared = call.types.state if what == "state" else call.types.result
    if len(array) != groups or array.type != declared:
        raise AggregateError(
            f"aggregate {call.name!r} ({call.function})", f"{groups} {what}s of type {declared}",
            f"{len(array)} of type {array.type}", f"mend its {what}",
        )  # fmt: skip
    return array
