"""Python aggregates inside Spark: Arrow batches in, Arrow states out, one pass per task."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import BaseModel

from skewless.aggregates import ArrowTypes, GroupsAccumulator, PythonAggregate
from skewless.errors import AggregateError
from skewless_spark.aggregates import REGISTRY
from skewless_spark.aggregates.binding import BoundAggregate
from skewless_spark.aggregates.key_index import KeyIndex
from skewless_spark.aggregates.stopwatch import Stopwatch

Batches = Iterable[pa.RecordBatch]
Groups = npt.NDArray[np.int64]

#: A row of a batch that came with the wave; one that another task left over; a carried state, no row of the input.
#: ``skewless_spark.stage.queue`` says what else a row's arrival can be.
_ADMITTED, _FORWARDED, _CARRIED = 0, 2, 3


class PythonCall(NamedTuple):
    """One Python aggregate of a job, as it travels to the workers: by name and plain options.

    Attributes:
        name: the result column.
        function: its name in the registry.
        options: its options as JSON values.
        spark_types: Spark SQL types of its arguments.
        argument: the column of the batches that holds its argument.
        state: the column that holds its states.
        limit_bytes: how large a state may be.
        result: the column that its results go to.
    """

    name: str
    function: str
    options: dict[str, object]
    spark_types: tuple[str, ...]
    argument: str
    state: str
    limit_bytes: int
    result: str = ""

    @property
    def where(self) -> str:
        """How messages call it."""
        return f"aggregate {self.name!r} ({self.function})"

    @property
    def definition(self) -> PythonAggregate:
        """What the registry knows under its name."""
        definition = REGISTRY[self.function]
        if not isinstance(definition, PythonAggregate):
            raise AggregateError(self.where, "a Python aggregate", "a native one")
        return definition

    @property
    def types(self) -> ArrowTypes:
        """The Arrow types of argument, state and result."""
        return self.definition.types(self._options, self.spark_types)

    def accumulator(self) -> GroupsAccumulator:
        """A fresh one."""
        return self.definition.accumulator(self._options, self.spark_types)

    @property
    def _options(self) -> BaseModel:
        return self.definition.options.model_validate(self.options)


def python_call(one: BoundAggregate, state: str, limit_bytes: int) -> PythonCall:
    """How a bound aggregate travels."""
    return PythonCall(
        one.name, one.definition.name, one.options.model_dump(), one.spark_types, f"a_{state}", state, limit_bytes
    )


def reduce_batches(calls: Sequence[PythonCall], keys: Sequence[str]) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """For ``mapInArrow``: reduce the rows of one task to one row of states per key.

    The batches hold ``task``, ``route_key``, ``arrival``, the key columns and the arguments; where states are
    carried on, also those, ahead of all rows, with ``total_rows``, the rows that they stand for. What comes out
    holds ``task``, the key columns, the rows of this stage, those admitted and those forwarded, all rows that the
    state stands for, the seconds spent on the key's rows (where they were measured), on the task's rows and on
    opening its keys (in its first row), and a state column per call.
    """

    def reduce(batches: Batches) -> Iterator[pa.RecordBatch]:
        reduction = _Reduction(calls, keys)
        for batch in batches:
            reduction.take(batch)
        yield from reduction.result()

    return reduce


class _Reduction:
    """The states of one task while its batches come in."""

    def __init__(self, calls: Sequence[PythonCall], keys: Sequence[str]) -> None:
        self._calls = calls
        self._keys = keys
        self._index = KeyIndex()
        self._accumulators = [call.accumulator() for call in calls]
        self._arguments = [call.types.argument for call in calls]
        self._labels: list[pa.RecordBatch] = []
        self._texts: list[pa.Array] = []
        self._rows, self._admitted, self._forwarded, self._before = (np.zeros(0, dtype=np.int64) for _ in range(4))
        self._watch, self._setup = Stopwatch(time.perf_counter), Stopwatch(time.perf_counter)

    def take(self, batch: pa.RecordBatch) -> None:
        """Take in a batch: carried states, rows, or the former ahead of the latter."""
        if not batch.num_rows:
            return
        groups = self._numbered(batch)
        total = len(self._index)
        arrival = batch.column("arrival").to_numpy(zero_copy_only=False)
        carried = int(np.count_nonzero(arrival == _CARRIED))
        if carried:
            self._restore(batch.slice(0, carried), groups[:carried], total)
        rows, new = groups[carried:], batch.slice(carried)
        self._rows = _counted(self._rows, rows, total)
        self._admitted = _counted(self._admitted, rows[arrival[carried:] == _ADMITTED], total)
        self._forwarded = _counted(self._forwarded, rows[arrival[carried:] == _FORWARDED], total)
        if len(rows):
            self._watch.timed(rows, total, lambda part, at: self._update(new, part, at, total))

    def result(self) -> Iterator[pa.RecordBatch]:
        """One row per key; nothing for a task without rows."""
        if not self._labels:
            return
        labels = pa.Table.from_batches(self._labels).combine_chunks().to_batches()[0]
        total = len(self._index)
        before = np.concatenate([self._before, np.zeros(total - len(self._before), dtype=np.int64)])
        states = [self._state_of(call, acc) for call, acc in zip(self._calls, self._accumulators, strict=True)]
        for call, accumulator in zip(self._calls, self._accumulators, strict=True):
            _guarded(call, "close_keys", accumulator, accumulator.close_keys, self._text_of)
        columns = {
            "python_rows": pa.array(self._rows),
            "python_admitted": pa.array(self._admitted),
            "python_forwarded": pa.array(self._forwarded),
            "total_rows": pa.array(self._rows + before),
            "key_seconds": self._watch.of_groups(self._rows),
            "task_seconds": _in_first_row(self._watch.seconds, total),
            "setup_seconds": _in_first_row(self._setup.seconds, total),
            **{call.state: state for call, state in zip(self._calls, states, strict=True)},
        }
        yield pa.RecordBatch.from_arrays([*labels.columns, *columns.values()], names=["task", *self._keys, *columns])

    def _numbered(self, batch: pa.RecordBatch) -> Groups:
        """The group of each row; new keys are noted and opened."""
        first = len(self._index)
        groups, new_rows = self._index.number(batch.column("route_key"))
        if len(new_rows):
            where = pa.array(new_rows)
            self._labels.append(batch.select(["task", *self._keys]).take(where))
            texts = batch.column("route_key").take(where).cast(pa.string(), safe=False)
            self._texts.append(texts)
            for call, accumulator in zip(self._calls, self._accumulators, strict=True):
                with self._setup.running():
                    _guarded(
                        call, "open_keys", accumulator, partial(accumulator.open_keys, texts, first), self._text_of
                    )
        return groups

    def _restore(self, batch: pa.RecordBatch, groups: Groups, total: int) -> None:
        self._before = np.bincount(groups, weights=batch.column("total_rows").to_numpy(), minlength=total).astype(
            np.int64
        )
        for call, acc in zip(self._calls, self._accumulators, strict=True):
            states = batch.column(call.state).cast(call.types.state)
            with self._watch.running():
                _guarded(call, "merge", acc, partial(acc.merge, states, groups, total), self._text_of)

    def _update(self, batch: pa.RecordBatch, groups: Groups, at: Groups | None, total: int) -> None:
        """Rows of a batch: all, or those at some places."""
        where = None if at is None else pa.array(at)
        for call, acc, kind in zip(self._calls, self._accumulators, self._arguments, strict=True):
            # A cast changes no value, but a timestamp comes labelled with the session's time zone.
            values = batch.column(call.argument).cast(kind)
            values = values if where is None else values.take(where)

            def alone(one: int, call: PythonCall = call, values: pa.Array = values) -> None:
                fresh = call.accumulator()
                rows = np.flatnonzero(groups == one)
                fresh.update(values.take(pa.array(rows)), np.zeros(len(rows), dtype=np.int64), 1)

            _guarded(call, "update", acc, partial(acc.update, values, groups, total), self._text_of, groups, alone)

    def _state_of(self, call: PythonCall, accumulator: GroupsAccumulator) -> pa.Array:
        total = len(self._index)
        with self._watch.running():
            states = _guarded(call, "state", accumulator, accumulator.state, self._text_of)
        states = _checked(call, states, call.types.state, total, "state")
        _refuse_large(call, states, self._text_of)
        return states

    def _text_of(self, group: int) -> str | None:
        texts = pa.chunked_array(self._texts, pa.string())
        return texts[group].as_py() if group < len(texts) else None


def evaluate_batches(
    calls: Sequence[PythonCall], passed: Sequence[str]
) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """For ``mapInArrow``: merge each key's list of states and evaluate it.

    The batches hold one row per key: the ``passed`` columns, ``route_key`` and ``states``, a list of structs
    with a field per call. What comes out holds the passed columns and a result per call.
    """

    def evaluate(batches: Batches) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            states = batch.column("states")
            flat = states.flatten()
            groups = _parents(states)
            texts = batch.column("route_key").cast(pa.string(), safe=False)
            results = [_evaluated(call, flat.field(call.state).cast(call.types.state), groups, texts) for call in calls]
            columns = [*(batch.column(name) for name in passed), *results]
            yield pa.RecordBatch.from_arrays(columns, names=[*passed, *(call.result for call in calls)])

    return evaluate


def _evaluated(call: PythonCall, states: pa.Array, groups: Groups, texts: pa.Array) -> pa.Array:
    accumulator, total = call.accumulator(), len(texts)

    def text_of(group: int) -> str | None:
        return texts[group].as_py()

    opened = call.definition.open_to_evaluate
    if opened:
        _guarded(call, "open_keys", accumulator, partial(accumulator.open_keys, texts, 0), text_of)
    _guarded(call, "merge", accumulator, partial(accumulator.merge, states, groups, total), text_of)
    found = _guarded(call, "evaluate", accumulator, accumulator.evaluate, text_of)
    if opened:
        _guarded(call, "close_keys", accumulator, accumulator.close_keys, text_of)
    return _checked(call, found, call.types.result, total, "result")


def _in_first_row(value: float, rows: int) -> pa.Array:
    return pa.array([value, *[None] * (rows - 1)], pa.float64())


def _parents(lists: pa.ListArray) -> Groups:
    lengths = lists.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    return np.repeat(np.arange(len(lists), dtype=np.int64), lengths)


def _counted(rows: Groups, groups: Groups, total: int) -> Groups:
    counts = np.bincount(groups, minlength=total).astype(np.int64)
    counts[: len(rows)] += rows
    return counts


def _guarded(
    call: PythonCall,
    what: str,
    accumulator: GroupsAccumulator,
    work: Callable[[], pa.Array],
    text_of: Callable[[int], str | None],
    groups: Groups | None = None,
    alone: Callable[[int], None] | None = None,
) -> pa.Array:
    """Run a method of an aggregate; what it raises becomes one sentence with the key, below its traceback.

    Args:
        call: whose it is.
        what: the method.
        accumulator: knows the group at work, if it goes key by key.
        work: calls it.
        text_of: the key text of a group.
        groups: the groups that it was given.
        alone: gives one group's rows to a fresh accumulator, to find the key that is to blame.
    """
    try:
        return work()
    except Exception as err:  # noqa: BLE001  # whatever an aggregate raises
        _refuse_raised(call, what, err, _culprit(accumulator, text_of, groups, alone))


def _refuse_raised(call: PythonCall, what: str, err: Exception, key: str) -> NoReturn:
    lines = "".join(traceback.format_exception(err))
    text = str(err).splitlines()
    came = f"{type(err).__name__}: {text[0][:200]}" if text else type(err).__name__
    refused = AggregateError(
        f"{call.where}{key}", f"{what} to take it", came, "its traceback is above; nothing was committed"
    )
    # A note, for of a chain of exceptions Spark passes on the last one alone.
    refused.add_note(f"in {call.where}:\n{lines}")
    raise refused from None


def _culprit(
    accumulator: GroupsAccumulator,
    text_of: Callable[[int], str | None],
    groups: Groups | None,
    alone: Callable[[int], None] | None,
) -> str:
    group = getattr(accumulator, "current_group", None)
    if group is None and groups is not None and alone is not None:
        group = next((one for one in np.unique(groups).tolist() if _raises(alone, one)), None)
        if group is None:
            return f", among {len(np.unique(groups)):,} keys"
    if group is None:
        return ""
    text = text_of(group)
    return ", null key" if text is None else f", key {text[:80]!r}"


def _raises(work: Callable[[int], None], group: int) -> bool:
    try:
        work(group)
    except Exception:  # noqa: BLE001  # that it raises is the answer
        return True
    return False


def _checked(call: PythonCall, array: pa.Array, declared: pa.DataType, groups: int, what: str) -> pa.Array:
    """Hold an accumulator to its contract: one value per group, of the declared type."""
    if not isinstance(array, pa.Array) or len(array) != groups or array.type != declared:
        came = f"{len(array)} of type {array.type}" if isinstance(array, pa.Array) else f"a {type(array).__name__}"
        raise AggregateError(call.where, f"{groups} {what}s of type {declared}", came, f"mend its {what}")
    return array


def _refuse_large(call: PythonCall, states: pa.Array, text_of: Callable[[int], str | None]) -> None:
    """A state larger than the limit would make one row of a file that no reader has room for."""
    if states.nbytes <= call.limit_bytes:
        return
    for group in range(len(states)):
        size = states.slice(group, 1).nbytes
        if size > call.limit_bytes:
            text = text_of(group)
            raise AggregateError(
                f"{call.where}, key {'null' if text is None else repr(text[:80])}",
                f"a state of at most {call.limit_bytes:,} bytes", f"{size:,} bytes",
                "take an aggregate with a bounded state, or raise state_limit_mb in the spec",
            )  # fmt: skip
