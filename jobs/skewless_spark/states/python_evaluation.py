"""States to results: the states of each key merged and evaluated by Python aggregates."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np
import pyarrow as pa

from skewless_spark.states.python_calls import Batches, Groups, PythonCall, checked, guarded


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
        guarded(call, "open_keys", accumulator, partial(accumulator.open_keys, texts, 0), text_of)
    guarded(call, "merge", accumulator, partial(accumulator.merge, states, groups, total), text_of)
    found = guarded(call, "evaluate", accumulator, accumulator.evaluate, text_of)
    if opened:
        guarded(call, "close_keys", accumulator, accumulator.close_keys, text_of)
    return checked(call, found, call.types.result, total, "result")


def _parents(lists: pa.ListArray) -> Groups:
    lengths = lists.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    return np.repeat(np.arange(len(lists), dtype=np.int64), lengths)
