"""Rows to states: Python aggregates over the Arrow batches of one task, in one pass."""

import gc
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from skewless_spark.aggregates.keys import KeyIndex
from skewless_spark.states.committed_files import ROUTE_KEY, StatesAtRest, StatesFound, in_part
from skewless_spark.states.job_columns import HASH
from skewless_spark.states.python_calls import Batches, Groups, PythonCall, checked, guarded, refuse_large

#: How a row came into a stage, in its column ``arrival``: with the wave; from the backlog, in the task that had it
#: already; or from the backlog and forwarded to another task.
ADMITTED, STAYED, FORWARDED = 0, 1, 2


#: Batches are joined until they have this many rows, and as many as there are known keys: each batch costs a look at
#: every known key and some hundred calls. They are given on sooner if they have this many bytes.
JOINED_ROWS = 1 << 18
JOINED_BYTES = 64 << 20
#: So many hashes of 32 bits add up exactly in a double.
_EXACT_ROWS = 1 << 20


def reduce_batches(
    calls: Sequence[PythonCall],
    keys: Sequence[str],
    *,
    apart: bool = True,
    at_rest: StatesAtRest | None = None,
    split: frozenset[str | None] | None = None,
) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """For ``mapInArrow``: reduce the rows of one task to one row of states per key.

    The batches have the key columns and the arguments, and some of these:

    - ``task``, and with a window ``part``, which the result has too: a state is then of a key in a part,
    - ``rows_hash``, the hash of the row,
    - ``route_key``, the text of the key, unless the key is one column of text,
    - ``arrival``, unless all rows came with the wave.

    The result has the columns of ``states_schema``: the key columns, the rows of this stage, of which admitted and of
    which forwarded, all rows that the state stands for, three kinds of seconds, and a state column per call. The
    seconds are those spent on the key's rows (null if not measured), on the task's rows, and on opening keys (both in
    the task's first row).

    With ``at_rest``, a key goes on from its state of an earlier stage. The result then has the text of the key, too,
    and in its first row how many states the task found, and how many of these, and how many bytes, had moved.

    With ``split`` it also has ``whole`` and a result column per call: a whole key has results, and null in place of
    states; any other has states.

    Args:
        at_rest: where the states of keys are; None if a key has one in each stage.
        split: the texts of keys that other tasks have rows of, too; None among them stands for null. All others are
            whole and evaluated. None in place of them if no key is.
    """

    def reduce(batches: Batches) -> Iterator[pa.RecordBatch]:
        _spare_modules()
        reduction = _Reduction(calls, keys, apart=apart, at_rest=at_rest, split=split)
        for batch in _joined(batches, lambda: len(reduction)):
            reduction.take(batch)
        yield from reduction.result()

    return reduce


@cache
def _spare_modules() -> None:
    """Keep what a Python worker has loaded out of its garbage collections.

    PySpark's workers collect after each task, and look at every object of every module for it: 40 ms of a core.
    """
    if TaskContext.get() is not None:
        gc.freeze()


def states_schema(
    calls: Sequence[PythonCall],
    keys: Sequence[str],
    of_rows: Collection[str],
    at_rest: StatesAtRest | None,
    split: frozenset[str | None] | None,
) -> dict[str, pa.DataType | None]:
    """The columns of states in their order, with their types; None for the type of the same column of the rows."""
    results = {} if split is None else {"whole": pa.bool_(), **{call.result: call.types.result for call in calls}}
    return {
        **dict.fromkeys([*_labels(of_rows, at_rest), *keys]),
        **dict.fromkeys(_COUNTED, pa.int64()),
        "python_hash": pa.int32(),
        **dict.fromkeys(_TIMED, pa.float64()),
        **{call.state: call.types.state for call in calls},
        **dict.fromkeys(_FOUND if at_rest else (), pa.int64()),
        **results,
    }


def _labels(of_rows: Collection[str], at_rest: StatesAtRest | None) -> list[str]:
    return [name for name in ("task", "part", *([ROUTE_KEY] if at_rest else [])) if name in of_rows]


#: The columns of states between keys and states.
_COUNTED = ("python_rows", "python_admitted", "python_forwarded", "total_rows")
_TIMED = ("key_seconds", "task_seconds", "setup_seconds")
_FOUND = ("found_states", "moved_states", "moved_bytes")


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
    def __init__(
        self,
        calls: Sequence[PythonCall],
        keys: Sequence[str],
        *,
        apart: bool,
        at_rest: StatesAtRest | None,
        split: frozenset[str | None] | None,
    ) -> None:
        self._calls = calls
        self._keys = keys
        self._apart = apart
        self._at_rest, self._found = at_rest, StatesFound(at_rest) if at_rest else None
        self._split = split
        self._index = KeyIndex()
        self._accumulators = [call.accumulator() for call in calls]
        self._arguments = [call.types.argument for call in calls]
        self._labels: list[pa.RecordBatch] = []
        self._texts: list[pa.Array] = []
        self._rows, self._admitted, self._forwarded, self._before = (np.zeros(0, dtype=np.int64) for _ in range(4))
        self._hashes = np.zeros(0, dtype=np.int64)
        self._watch, self._setup = Stopwatch(time.perf_counter), Stopwatch(time.perf_counter)

    def __len__(self) -> int:
        return len(self._index)

    def take(self, batch: pa.RecordBatch) -> None:
        groups = self._numbered(batch)
        total = len(self._index)
        counts = np.bincount(groups, minlength=total)
        self._rows = _added(self._rows, counts)
        self._hashes = _added(self._hashes, _sums(batch[HASH].to_numpy(), groups, total))
        arrival = batch["arrival"].to_numpy(zero_copy_only=False) if "arrival" in batch.schema.names else None
        if arrival is None:
            self._admitted = self._rows
        else:
            self._admitted = _added(self._admitted, np.bincount(groups[arrival == ADMITTED], minlength=total))
            self._forwarded = _added(self._forwarded, np.bincount(groups[arrival == FORWARDED], minlength=total))
        if self._apart:
            self._watch.timed(groups, counts, lambda part, at: self._update(batch, part, at, total))
        else:
            with self._watch.running():
                self._update(batch, groups, None, total)

    def result(self) -> Iterator[pa.RecordBatch]:
        """One row per key; nothing for a task without rows."""
        if not self._labels:
            return
        labels = _one(self._labels)
        total = len(self._index)
        made = self._states(total) if self._split is None else self._results(total, self._split)
        for call, accumulator in zip(self._calls, self._accumulators, strict=True):
            guarded(call, "close_keys", accumulator, accumulator.close_keys, self._text_of)
        counts_of_states = {}
        if self._found is not None:
            numbers = (self._found.found, self._found.moved, self._found.moved_bytes)
            counts_of_states = {name: _in_first_row(number, total, pa.int64())
                                for name, number in zip(_FOUND, numbers, strict=True)}  # fmt: skip
        columns = {
            "python_rows": pa.array(self._rows),
            "python_admitted": pa.array(self._admitted),
            "python_forwarded": pa.array(_added(self._forwarded, np.zeros(total, dtype=np.int64))),
            "total_rows": pa.array(_added(self._before, self._rows)),
            "python_hash": pa.array(self._hashes.astype(np.int32)),
            "key_seconds": self._watch.of_groups(self._rows),
            "task_seconds": _in_first_row(self._watch.seconds, total),
            "setup_seconds": _in_first_row(self._setup.seconds, total),
            **made,
            **counts_of_states,
        }
        yield pa.RecordBatch.from_arrays([*labels.columns, *columns.values()], names=[*labels.schema.names, *columns])

    def _numbered(self, batch: pa.RecordBatch) -> Groups:
        first, names = len(self._index), batch.schema.names
        key = batch["route_key"] if "route_key" in names else batch[self._keys[0]].cast(pa.binary())
        groups, new_rows = self._index.number(in_part(batch["part"], key) if "part" in names else key)
        if len(new_rows):
            own = [*_labels(names, self._at_rest), *self._keys]
            self._labels.append(batch.select(own).take(pa.array(new_rows)))
            texts = key.take(pa.array(new_rows)).cast(pa.string(), safe=False)
            self._texts.append(texts)
            for call, accumulator in zip(self._calls, self._accumulators, strict=True):
                with self._setup.running():
                    guarded(call, "open_keys", accumulator, partial(accumulator.open_keys, texts, first), self._text_of)
            if self._found:  # new keys go on from their states of earlier stages
                task = batch["task"][0].as_py()
                for positions, states in self._found.of(task, self._index.keys.slice(first)):
                    self._restore(states, positions + first, len(self._index))
        return groups

    def _restore(self, batch: pa.RecordBatch, groups: Groups, total: int) -> None:
        stands_for = np.bincount(groups, weights=batch.column("total_rows").to_numpy(), minlength=total)
        self._before = _added(self._before, stands_for.astype(np.int64))
        for call, acc in zip(self._calls, self._accumulators, strict=True):
            states = batch.column(call.state).cast(call.types.state)
            with self._watch.running():
                guarded(call, "merge", acc, partial(acc.merge, states, groups, total), self._text_of)

    def _update(self, batch: pa.RecordBatch, groups: Groups, at: Groups | None, total: int) -> None:
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

    def _states(self, total: int) -> dict[str, pa.Array]:
        made = {}
        for call, accumulator in zip(self._calls, self._accumulators, strict=True):
            with self._watch.running():
                states = guarded(call, "state", accumulator, accumulator.state, self._text_of)
            made[call.state] = checked(call, states, call.types.state, total, "state")
            refuse_large(call, states, self._text_of)
        return made

    def _results(self, total: int, split: frozenset[str | None]) -> dict[str, pa.Array]:
        """Results of whole keys and states of all others. States are not made if all keys are whole."""
        texts = self._index.keys
        listed = pa.array([None if key is None else key.encode() for key in split], texts.type)
        parts = pc.is_in(texts, listed).to_numpy(zero_copy_only=False)
        if parts.any():
            made = {name: _only(states, parts) for name, states in self._states(total).items()}
        else:
            made = {call.state: pa.nulls(total, call.types.state) for call in self._calls}
        made["whole"] = pa.array(~parts)
        for call, accumulator in zip(self._calls, self._accumulators, strict=True):
            with self._watch.running():
                found = guarded(call, "evaluate", accumulator, accumulator.evaluate, self._text_of)
            found = checked(call, found, call.types.result, total, "result")
            made[call.result] = _only(found, ~parts) if parts.any() else found
        return made

    def _text_of(self, group: int) -> str | None:
        return pa.chunked_array(self._texts)[group].as_py() if group < len(self._index) else None


def _only(values: pa.Array, where: npt.NDArray[np.bool_]) -> pa.Array:
    return values.take(pa.array(np.arange(len(values)), mask=~where))


def _in_first_row(value: float, rows: int, kind: pa.DataType | None = None) -> pa.Array:
    return pa.array([value, *[None] * (rows - 1)], kind or pa.float64())


def _sums(hashes: Groups, groups: Groups, total: int) -> Groups:
    """The sum of the hashes of each group, modulo 2**32; weights are doubles, exact for the 2**20 rows at a time."""
    sums = np.zeros(total, dtype=np.int64)
    for at in range(0, len(groups), _EXACT_ROWS):
        part = slice(at, at + _EXACT_ROWS)
        sums += np.bincount(groups[part], weights=hashes[part], minlength=total).astype(np.int64)
    return sums


def _added(before: Groups, counts: Groups) -> Groups:
    total = counts.astype(np.int64)
    total[: len(before)] += before
    return total


#: Of a batch at most so many keys are timed apart, the heaviest: every further call of an aggregate costs some ten
#: microseconds. A key of fewer rows than ``TIMED_ROWS`` is one of them only in a batch that has few rows.
TIMED_KEYS, TIMED_ROWS = 64, 8


def timed_apart(counts: Groups) -> Groups:
    """The groups of a batch that are timed apart.

    Args:
        counts: the rows of each group in the batch, shape ``(groups,)``.
    """
    least = max(2.0, min(TIMED_ROWS, int(counts.sum()) / TIMED_KEYS))
    heavy: Groups = np.flatnonzero(counts >= least)
    if len(heavy) > TIMED_KEYS:
        heaviest = heavy[np.argsort(-counts[heavy], kind="stable")[:TIMED_KEYS]]
        heavy = np.sort(heaviest)
    return heavy


class Stopwatch:
    """Seconds of one task, and of the keys that were timed apart.

    The batches alone decide which rows are timed together, never the time itself, so that a task that is run again
    groups its rows in the same way.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.seconds = 0.0
        self._of_groups = np.zeros(0)
        self._timed_rows = np.zeros(0, dtype=np.int64)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Count the time of the block."""
        started = self._clock()
        try:
            yield
        finally:
            self.seconds += self._clock() - started

    def timed(self, groups: Groups, counts: Groups, update: Callable[[Groups, Groups | None], None]) -> None:
        """Update with a batch, and time its heavy keys apart.

        Rows of one key stay in order; rows of different keys may be reordered.

        Args:
            groups: the group of each row, shape ``(rows,)``, not empty.
            counts: the rows of each group in the batch, shape ``(groups,)``.
            update: called with groups and the row numbers they have in the batch, or None for the whole batch.
        """
        heavy = timed_apart(counts)
        self._grow(len(counts))
        self._timed_rows[heavy] += counts[heavy]
        # A sort of small integers, which numpy does in one pass over the rows, however many keys are heavy.
        place = np.full(len(counts), len(heavy), dtype=np.int8)
        place[heavy] = np.arange(len(heavy))
        order = np.argsort(place[groups], kind="stable")
        *apart, rest = np.split(order, np.cumsum(counts[heavy]))
        for group, at in zip(heavy.tolist(), apart, strict=True):
            before = self.seconds
            with self.running():
                update(groups[at], None if len(at) == len(groups) else at)
            self._of_groups[group] += self.seconds - before
        if len(rest):
            with self.running():
                update(groups[rest], None if not len(heavy) else rest)

    def of_groups(self, rows: Groups) -> pa.Array:
        """Seconds of each group, null where it was never timed apart, shape ``(groups,)``.

        In batches in which a key was light, it is assumed to have cost the same per row.

        Args:
            rows: the total rows of each group, shape ``(groups,)``.
        """
        self._grow(len(rows))
        timed = self._timed_rows > 0
        scaled = self._of_groups * rows / np.maximum(self._timed_rows, 1)
        return pa.array(scaled, mask=~timed)

    def _grow(self, total: int) -> None:
        more = total - len(self._of_groups)
        if more > 0:
            self._of_groups = np.concatenate([self._of_groups, np.zeros(more)])
            self._timed_rows = np.concatenate([self._timed_rows, np.zeros(more, dtype=np.int64)])
