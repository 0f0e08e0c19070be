"""Rows to states: Python aggregates over the Arrow batches of one task, in one pass."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np
import pyarrow as pa

from skewless.aggregates import GroupsAccumulator
from skewless_spark.aggregates.key_index import KeyIndex
from skewless_spark.aggregates.stopwatch import Stopwatch
from skewless_spark.states.python_calls import Batches, Groups, PythonCall, checked, guarded, refuse_large

#: How a row came into a stage, in its column ``arrival``: with the wave; from the backlog, in the task that had it
#: already; or from the backlog and forwarded to another task. The last one is no row of the input: it is the state of
#: a key that lives in one task (``state: forward``).
ADMITTED, STAYED, FORWARDED, CARRIED = 0, 1, 2, 3


def reduce_batches(calls: Sequence[PythonCall], keys: Sequence[str]) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """For ``mapInArrow``: reduce the rows of one task to one row of states per key.

    The batches have ``task``, ``route_key``, ``arrival``, the key columns and the arguments. Carried states come ahead
    of all rows, with ``total_rows``, the rows that they stand for.

    The result has ``task``, the key columns, the rows of this stage, of which admitted and of which forwarded, all
    rows that the state stands for, three kinds of seconds, and a state column per call. The seconds are those spent on
    the key's rows (null if not measured), on the task's rows, and on opening keys (both in the task's first row).
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
        """Add a batch: carried states, rows, or carried states followed by rows."""
        if not batch.num_rows:
            return
        groups = self._numbered(batch)
        total = len(self._index)
        arrival = batch.column("arrival").to_numpy(zero_copy_only=False)
        carried = int(np.count_nonzero(arrival == CARRIED))
        if carried:
            self._restore(batch.slice(0, carried), groups[:carried], total)
        rows, new = groups[carried:], batch.slice(carried)
        self._rows = _counted(self._rows, rows, total)
        self._admitted = _counted(self._admitted, rows[arrival[carried:] == ADMITTED], total)
        self._forwarded = _counted(self._forwarded, rows[arrival[carried:] == FORWARDED], total)
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
            guarded(call, "close_keys", accumulator, accumulator.close_keys, self._text_of)
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
        """The group of each row; new keys are recorded and opened."""
        first = len(self._index)
        groups, new_rows = self._index.number(batch.column("route_key"))
        if len(new_rows):
            where = pa.array(new_rows)
            self._labels.append(batch.select(["task", *self._keys]).take(where))
            texts = batch.column("route_key").take(where).cast(pa.string(), safe=False)
            self._texts.append(texts)
            for call, accumulator in zip(self._calls, self._accumulators, strict=True):
                with self._setup.running():
                    guarded(call, "open_keys", accumulator, partial(accumulator.open_keys, texts, first), self._text_of)
        return groups

    def _restore(self, batch: pa.RecordBatch, groups: Groups, total: int) -> None:
        self._before = np.bincount(groups, weights=batch.column("total_rows").to_numpy(), minlength=total).astype(
            np.int64
        )
        for call, acc in zip(self._calls, self._accumulators, strict=True):
            states = batch.column(call.state).cast(call.types.state)
            with self._watch.running():
                guarded(call, "merge", acc, partial(acc.merge, states, groups, total), self._text_of)

    def _update(self, batch: pa.RecordBatch, groups: Groups, at: Groups | None, total: int) -> None:
        """Update with the rows of a batch: all rows, or those numbered in ``at``."""
        where = None if at is None else pa.array(at)
        for call, acc, kind in zip(self._calls, self._accumulators, self._arguments, strict=True):
            # A cast changes no value, but a timestamp comes labelled with the session's time zone.
            values = batch.column(call.argument).cast(kind)
            values = values if where is None else values.take(where)

            def alone(one: int, call: PythonCall = call, values: pa.Array = values) -> None:
                fresh = call.accumulator()
                rows = np.flatnonzero(groups == one)
                fresh.update(values.take(pa.array(rows)), np.zeros(len(rows), dtype=np.int64), 1)

            guarded(call, "update", acc, partial(acc.update, values, groups, total), self._text_of, groups, alone)

    def _state_of(self, call: PythonCall, accumulator: GroupsAccumulator) -> pa.Array:
        total = len(self._index)
        with self._watch.running():
            states = guarded(call, "state", accumulator, accumulator.state, self._text_of)
        states = checked(call, states, call.types.state, total, "state")
        refuse_large(call, states, self._text_of)
        return states

    def _text_of(self, group: int) -> str | None:
        texts = pa.chunked_array(self._texts, pa.string())
        return texts[group].as_py() if group < len(texts) else None


def _in_first_row(value: float, rows: int) -> pa.Array:
    return pa.array([value, *[None] * (rows - 1)], pa.float64())


def _counted(rows: Groups, groups: Groups, total: int) -> Groups:
    counts = np.bincount(groups, minlength=total).astype(np.int64)
    counts[: len(rows)] += rows
    return counts
