"""States to results: the states of each key merged and evaluated by Python aggregates."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from skewless_spark.aggregates.key_index import KeyIndex
from skewless_spark.states.python_calls import Batches, Groups, PythonCall, checked, guarded

#: Beside results of states that came from several input splits: in some rows, each split's number, how many rows and
#: states of it were merged there, and the seconds that they took. All of these together are all that was merged.
SPLITS = "splits"
SPLITS_TYPE = pa.list_(
    pa.struct([("split", pa.int32()), ("rows", pa.int64()), ("states", pa.int64()), ("seconds", pa.float64())])
)


def evaluate_batches(
    calls: Sequence[PythonCall], passed: Sequence[str]
) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """For ``mapInArrow``: merge each key's list of states and evaluate it.

    The batches have one row per key: the ``passed`` columns, ``route_key`` and ``states``, a list of structs with a
    field per call. The result has the passed columns and a result column per call.
    """

    def evaluate(batches: Batches) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            states = batch.column("states")
            flat = states.flatten()
            groups = _parents(states)
            texts = batch.column("route_key").cast(pa.string(), safe=False)
            results = [_outcome(call, "evaluate", flat.field(call.state), groups, texts) for call in calls]
            columns = [*(batch.column(name) for name in passed), *results]
            names = [*passed, *(call.result for call in calls)]
            yield pa.RecordBatch.from_arrays(columns, names=names)

    return evaluate


def merge_batches(calls: Sequence[PythonCall], passed: Sequence[str]) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """For ``mapInArrow``: make each key's list of states a list of one state.

    The batches have one row per key: the ``passed`` columns, ``route_key`` and ``states`` as for ``evaluate_batches``.
    The result has the passed columns and ``states``.
    """

    def merge(batches: Batches) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            lists = batch.column("states")
            flat, groups = lists.flatten(), _parents(lists)
            texts = batch.column("route_key").cast(pa.string(), safe=False)
            states = [_outcome(call, "state", flat.field(call.state), groups, texts) for call in calls]
            merged = pa.StructArray.from_arrays(states, names=[call.state for call in calls])
            ones = pa.ListArray.from_arrays(np.arange(len(texts) + 1, dtype=np.int32), merged).cast(lists.type)
            columns = [*(batch.column(name) for name in passed), ones]
            yield pa.RecordBatch.from_arrays(columns, names=[*passed, "states"])

    return merge


def _outcome(
    call: PythonCall, what: Literal["state", "evaluate"], states: pa.Array, groups: Groups, texts: pa.Array
) -> pa.Array:
    """The merged state or the result of each key."""
    accumulator, total = call.accumulator(), len(texts)

    def text_of(group: int) -> str | None:
        return texts[group].as_py()

    if call.definition.open_to_evaluate:
        guarded(call, "open_keys", accumulator, partial(accumulator.open_keys, texts, 0), text_of)
    of_call = states.cast(call.types.state)
    guarded(call, "merge", accumulator, partial(accumulator.merge, of_call, groups, total), text_of)
    found = guarded(call, what, accumulator, getattr(accumulator, what), text_of)
    if call.definition.open_to_evaluate:
        guarded(call, "close_keys", accumulator, accumulator.close_keys, text_of)
    if what == "state":
        return checked(call, found, call.types.state, total, "state")
    return checked(call, found, call.types.result, total, "result")


def evaluate_in_order(
    calls: Sequence[PythonCall], keys: Sequence[str], *, newest: bool = False, splits: bool = False
) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """For ``mapInArrow``: merge and evaluate states that come sorted by key, with one row per state.

    The batches have the key columns, ``route_key`` unless the key is one column of text, ``rows`` and the state
    columns; a row without a state has ``python_rows`` null. The result has the key columns, the rows of each key, and
    a result column per call. No more is held than a batch and the states of one key.

    Args:
        newest: whether the last state of a key stands for all of its rows; the others then only count their rows.
        splits: whether the first row of each batch of results says what states there were of each split in it. The
            batches then have ``task``, the number of the split, and its seconds.
    """

    def evaluate(batches: Batches) -> Iterator[pa.RecordBatch]:
        for batch in _whole_keys(batches, keys):
            text = _text(batch, keys)
            index = KeyIndex()
            groups, first_rows = index.number(text)
            texts = index.keys.cast(pa.string(), safe=False)
            rows = np.bincount(groups, weights=batch["rows"].fill_null(0).to_numpy(), minlength=len(index))
            at = np.flatnonzero(batch["python_rows"].is_valid().to_numpy(zero_copy_only=False))
            if newest and len(at):
                at = at[np.append(np.diff(groups[at]) != 0, True)]
            of_states = groups[at]
            states = [(call, batch[call.state].take(pa.array(at))) for call in calls]
            results = [_outcome(call, "evaluate", one, of_states, texts) for call, one in states]
            labels = batch.select(keys).take(pa.array(first_rows))
            columns = [*labels.columns, pa.array(rows.astype(np.int64)), *results]
            names = [*keys, "rows", *(call.result for call in calls)]
            if splits:
                columns.append(_of_splits(batch, len(texts)))
                names.append(SPLITS)
            yield pa.RecordBatch.from_arrays(columns, names=names)

    return evaluate


def _of_splits(states: pa.RecordBatch, rows: int) -> pa.Array:
    """What states there are of each split, in the first of some rows."""
    split = states["task"].to_numpy()
    count = np.bincount(split)
    seen = np.flatnonzero(count)

    def total(name: str) -> npt.NDArray[np.float64]:
        return np.bincount(split, weights=states[name].fill_null(0).to_numpy())[seen].astype(np.float64)

    rows_of, seconds = total("python_rows"), total("task_seconds") + total("setup_seconds")
    found = [pa.array(of_each) for of_each in (seen.astype(np.int32), rows_of.astype(np.int64), count[seen], seconds)]
    listed = pa.StructArray.from_arrays(found, fields=list(SPLITS_TYPE.value_type))
    first = pa.ListArray.from_arrays(pa.array([0, len(seen)], pa.int32()), listed)
    return pa.concat_arrays([first.cast(SPLITS_TYPE), pa.nulls(rows - 1, SPLITS_TYPE)])


def _text(batch: pa.RecordBatch, keys: Sequence[str]) -> pa.Array:
    return batch["route_key"] if "route_key" in batch.schema.names else batch[keys[0]].cast(pa.binary())


def _whole_keys(batches: Batches, keys: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The same rows in batches that end where a key does."""
    held: pa.RecordBatch | None = None
    for batch in batches:
        if not batch.num_rows:
            continue
        joined = batch if held is None else pa.concat_batches([held, batch])
        numbers = _text(joined, keys).dictionary_encode(null_encoding="encode").indices.to_numpy()
        last = int(np.searchsorted(numbers, numbers[-1]))
        if last:
            yield joined.slice(0, last)
        held = joined.slice(last)
    if held is not None:
        yield held


def _parents(lists: pa.ListArray) -> Groups:
    lengths = lists.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    return np.repeat(np.arange(len(lists), dtype=np.int64), lengths)
