"""A Python aggregate in Spark's workers: how it is sent and checked, how states of a key are merged and evaluated."""

import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Literal, NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import BaseModel

from skewless.aggregates import ArrowTypes, GroupsAccumulator, PythonAggregate
from skewless.errors import AggregateError
from skewless_spark.aggregates import REGISTRY, Aggregate
from skewless_spark.aggregates.binding import BoundAggregate

Batches = Iterable[pa.RecordBatch]
Groups = npt.NDArray[np.int64]
STATE_LIMIT_BYTES = 256 << 20


class PythonCall(NamedTuple):
    """One Python aggregate of a job as it is sent to the workers: by name and plain options."""

    name: str
    function: str
    options: dict[str, object]
    spark_types: tuple[str, ...]
    argument: str
    """The column of the batches that holds its argument."""
    state: str
    result: str = ""

    @property
    def where(self) -> str:
        """Its name in error messages."""
        return f"aggregate {self.name!r} ({self.function})"

    @property
    def definition(self) -> PythonAggregate:
        """The aggregate that is registered under its name."""
        definition = REGISTRY[self.function]
        if not isinstance(definition, PythonAggregate):
            raise AggregateError(self.where, "a Python aggregate", "a native one")
        return definition

    @property
    def types(self) -> ArrowTypes:
        """The Arrow types of argument, state and result."""
        return self.definition.types(self._options, self.spark_types)

    def accumulator(self) -> GroupsAccumulator:
        """A new accumulator."""
        return self.definition.accumulator(self._options, self.spark_types)

    @property
    def _options(self) -> BaseModel:
        return self.definition.options.model_validate(self.options)


def python_call(one: BoundAggregate[Aggregate], state: str) -> PythonCall:
    """A bound aggregate as it is sent to the workers."""
    return PythonCall(one.name, one.definition.name, one.options.model_dump(), one.spark_types, f"a_{state}", state)


def guarded(
    call: PythonCall,
    what: str,
    accumulator: GroupsAccumulator,
    work: Callable[[], pa.Array],
    text_of: Callable[[int], str | None],
    groups: Groups | None = None,
    alone: Callable[[int], None] | None = None,
) -> pa.Array:
    """Run a method of an aggregate. An error in it becomes one sentence that names the key, below its traceback.

    Args:
        accumulator: knows the current group, if it works key by key.
        alone: gives the rows of one group to a new accumulator, to find the key that raises.
    """
    try:
        return work()
    except Exception as err:  # noqa: BLE001  # whatever an aggregate raises
        _refuse_raised(call, what, err, _culprit(accumulator, text_of, groups, alone))


def _refuse_raised(call: PythonCall, what: str, err: Exception, key: str) -> NoReturn:
    text = str(err).splitlines()
    if isinstance(err, pa.ArrowInvalid) and "overflow" in str(err):
        raise _beyond_arrow(call, what, text[0][:200]) from err
    lines = "".join(traceback.format_exception(err))
    came = f"{type(err).__name__}: {text[0][:200]}" if text else type(err).__name__
    refused = AggregateError(
        f"{call.where}{key}", f"{what} to take it", came, "its traceback is above; nothing was committed"
    )
    # A note, for of a chain of exceptions Spark passes on the last one alone.
    refused.add_note(f"in {call.where}:\n{lines}")
    raise refused from None


def _beyond_arrow(call: PythonCall, what: str, came: str) -> AggregateError:
    return AggregateError(
        f"{call.where}, {what}", "less than 2 GiB of text for all keys of a task, as Arrow's arrays hold", came,
        "let more tasks share the keys: raise routing.reducers",
    )  # fmt: skip


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


def checked(call: PythonCall, array: pa.Array, declared: pa.DataType, groups: int, what: str) -> pa.Array:
    """Check that an accumulator returned one value per group, of the declared type."""
    if isinstance(array, pa.ChunkedArray):
        raise _beyond_arrow(call, what, "more")
    if not isinstance(array, pa.Array) or len(array) != groups or array.type != declared:
        came = f"{len(array)} of type {array.type}" if isinstance(array, pa.Array) else f"a {type(array).__name__}"
        raise AggregateError(call.where, f"{groups} {what}s of type {declared}", came, f"mend its {what}")
    return array


def refuse_large(call: PythonCall, states: pa.Array, text_of: Callable[[int], str | None]) -> None:
    """Refuse a state above the limit: it would be a row of a file that no reader has memory for."""
    if states.nbytes <= STATE_LIMIT_BYTES:
        return
    for group in range(len(states)):
        size = states.slice(group, 1).nbytes
        if size > STATE_LIMIT_BYTES:
            text = text_of(group)
            raise AggregateError(
                f"{call.where}, key {'null' if text is None else repr(text[:80])}",
                f"a state of at most {STATE_LIMIT_BYTES:,} bytes", f"{size:,} bytes",
                "take an aggregate with a bounded state",
            )  # fmt: skip


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


def _parents(lists: pa.ListArray) -> Groups:
    lengths = lists.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    return np.repeat(np.arange(len(lists), dtype=np.int64), lengths)
