"""Rows to states: Python aggregates over the Arrow batches of one task, in one pass."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skewless.aggregates import GroupsAccumulator
from skewless_spark.aggregates.key_index import KeyIndex
from skewless_spark.aggregates.stopwatch import Stopwatch
from skewless_spark.states.python_calls import Batches, Groups, PythonCall, checked, guarded, refuse_large

#: How a row came into a stage, in its column ``arrival``: with the wave; from the backlog, in the task that had it
#: already; or from the backlog and forwarded to another task. The last one is no row of the input: it is the state of
#: a key that lives in one task (``state: forward``).
ADMITTED, STAYED, FORWARDED, CARRIED = 0, 1, 2, 3


#: Batches are joined until they have this many rows, and as many as there are known keys: each batch costs a look at
#: every known key and some hundred calls. They are given on sooner if they have this many bytes.
JOINED_ROWS = 1 << 18
JOINED_BYTES = 64 << 20


def reduce_batches(
    calls: Sequence[PythonCall], keys: Sequence[str], *, apart: bool = True
) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """For ``mapInArrow``: reduce the rows of one task to one row of states per key.

    The batches have the key columns and the arguments, and some of these:

    - ``task``, and with a window ``part``, which the result has too: a state is then of a key in a part,
    - ``route_key``, the text of the key, unless the key is one column of text,
    - ``arrival``, unless all rows came with the wave. Carried states come ahead of all rows, with ``total_rows``, the
      rows that they stand for.

    The result has the key columns, the rows of this stage, of which admitted and of which forwarded, all
    rows that the state stands for, three kinds of seconds, and a state column per call. The seconds are those spent on
    the key's rows (null if not measured), on the task's rows, and on opening keys (both in the task's first row).

    Args:
        calls: the aggregates.
        keys: the key columns.
        apart: whether to time heavy keys apart.
    """

    def reduce(batches: Batches) -> Iterator[pa.RecordBatch]:
        reduction = _Reduction(calls, keys, apart=apart)
        for batch in _joined(batches, lambda: len(reduction)):
            reduction.take(batch)
        yield from reduction.result()

    return reduce


def _joined(batches: Batches, known_keys: Callable[[], int]) -> Iterator[pa.RecordBatch]:
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        if batch.num_rows:
            waiting.append(batch)
        rows, size = sum(one.num_rows for one in waiting), sum(one.nbytes for one in waiting)
        if rows >= max(JOINED_ROWS, known_keys()) or size >= JOINED_BYTES:
            yield _one(waiting)
            waiting = []
    if waiting:
        yield _one(waiting)


def _one(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


class _Reduction:
    """The states of one task while its batches come in."""

    def __init__(self, calls: Sequence[PythonCall], keys: Sequence[str], *, apart: bool) -> None:
        self._calls = calls
        self._keys = keys
        self._apart = apart
        self._index = KeyIndex()
        self._accumulators = [call.accumulator() for call in calls]
        self._arguments = [call.types.argument for call in calls]
        self._labels: list[pa.RecordBatch] = []
        self._texts: list[pa.Array] = []
        self._rows, self._admitted, self._forwarded, self._before = (np.zeros(0, dtype=np.int64) for _ in range(4))
        self._watch, self._setup = Stopwatch(time.perf_counter), Stopwatch(time.perf_counter)

    def __len__(self) -> int:
        """Keys seen so far."""
        return len(self._index)

    def take(self, batch: pa.RecordBatch) -> None:
        """Add a batch: carried states, rows, or carried states followed by rows."""
        groups = self._numbered(batch)
        total = len(self._index)
        arrival = batch["arrival"].to_numpy(zero_copy_only=False) if "arrival" in batch.schema.names else None
        carried = 0 if arrival is None else int(np.count_nonzero(arrival == CARRIED))
        if carried:
            self._restore(batch.slice(0, carried), groups[:carried], total)
        rows, new = groups[carried:], batch.slice(carried)
        counts = np.bincount(rows, minlength=total)
        self._rows = _added(self._rows, counts)
        if arrival is None:
            self._admitted = self._rows
        else:
            of_rows = arrival[carried:]
            self._admitted = _added(self._admitted, np.bincount(rows[of_rows == ADMITTED], minlength=total))
            self._forwarded = _added(self._forwarded, np.bincount(rows[of_rows == FORWARDED], minlength=total))
        if not len(rows):
            return
        if self._apart:
            self._watch.timed(rows, counts, lambda part, at: self._update(new, part, at, total))
        else:
            with self._watch.running():
                self._update(new, rows, None, total)

    def result(self) -> Iterator[pa.RecordBatch]:
        """One row per key; nothing for a task without rows."""
        if not self._labels:
            return
        labels = _one(self._labels)
        total = len(self._index)
        states = [self._state_of(call, acc) for call, acc in zip(self._calls, self._accumulators, strict=True)]
        for call, accumulator in zip(self._calls, self._accumulators, strict=True):
            guarded(call, "close_keys", accumulator, accumulator.close_keys, self._text_of)
        nothing = np.zeros(total, dtype=np.int64)
        columns = {
            "python_rows": pa.array(self._rows),
            "python_admitted": pa.array(self._admitted),
            "python_forwarded": pa.array(_added(self._forwarded, nothing)),
            "total_rows": pa.array(_added(self._before, self._rows)),
            "key_seconds": self._watch.of_groups(self._rows),
            "task_seconds": _in_first_row(self._watch.seconds, total),
            "setup_seconds": _in_first_row(self._setup.seconds, total),
            **{call.state: state for call, state in zip(self._calls, states, strict=True)},
        }
        yield pa.RecordBatch.from_arrays([*labels.columns, *columns.values()], names=[*labels.schema.names, *columns])

    def _numbered(self, batch: pa.RecordBatch) -> Groups:
        """The group of each row; new keys are recorded and opened."""
        first, names = len(self._index), batch.schema.names
        key = batch["route_key"] if "route_key" in names else batch[self._keys[0]].cast(pa.binary())
        groups, new_rows = self._index.number(in_part(batch["part"], key) if "part" in names else key)
        if len(new_rows):
            own = [*(name for name in ("task", "part") if name in names), *self._keys]
            self._labels.append(batch.select(own).take(pa.array(new_rows)))
            texts = key.take(pa.array(new_rows)).cast(pa.string(), safe=False)
            self._texts.append(texts)
            for call, accumulator in zip(self._calls, self._accumulators, strict=True):
                with self._setup.running():
                    guarded(call, "open_keys", accumulator, partial(accumulator.open_keys, texts, first), self._text_of)
        return groups

    def _restore(self, batch: pa.RecordBatch, groups: Groups, total: int) -> None:
        stands_for = np.bincount(groups, weights=batch.column("total_rows").to_numpy(), minlength=total)
        self._before = _added(self._before, stands_for.astype(np.int64))
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
        return pa.chunked_array(self._texts)[group].as_py() if group < len(self._index) else None


def in_part(part: pa.Array, key: pa.Array) -> pa.Array:
    """A text that tells a key in one part of a window from the same key in another part, and null from any key."""
    prefix = part.cast(pa.string()).cast(pa.binary())
    joined = pc.binary_join_element_wise(prefix, key.cast(pa.binary()), pa.scalar(b"/", pa.binary()))
    return pc.if_else(key.is_valid(), joined, prefix)


def _in_first_row(value: float, rows: int) -> pa.Array:
    return pa.array([value, *[None] * (rows - 1)], pa.float64())


def _added(before: Groups, counts: Groups) -> Groups:
    """Counts by group, of which there may be more now than before."""
    total = counts.astype(np.int64)
    total[: len(before)] += before
    return total
