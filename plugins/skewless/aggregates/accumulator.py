"""Where the states of keys live while rows come in; and which types of argument an aggregate takes.

A function that is an ``accepts`` gives "" if a type will do. All are allow-lists. None accepts a type that a later
Spark adds, or one with rules of its own for what is equal, such as a string with a collation.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Accepts = Callable[[str], str]

NUMERIC_TYPES = ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal")
INTEGRAL_TYPES = ("tinyint", "smallint", "int", "bigint")

#: Types of one value each; two values are equal if their bytes are, floating-point numbers beside.
_PLAIN = (
    r"boolean|tinyint|smallint|int|bigint|float|double|decimal\(\d+, ?\d+\)|string|binary|date|timestamp|timestamp_ntz"
)
#: An array or a struct of plain types, which is comparable, and a map of them, which is not.
_FIELD = rf"(?:`(?:[^`]|``)*`|[^<>:,`]+):(?:{_PLAIN})"
_COMPARABLE = rf"array<(?:{_PLAIN})>|struct<{_FIELD}(?:,{_FIELD})*>"
_MAP = rf"map<(?:{_PLAIN}),(?:{_PLAIN})>"


def _made_of(inner: str, spark_type: str) -> bool:
    """Whether a type is plain, or nested by some patterns: the innermost is taken for plain until there is none."""
    before, kind = "", spark_type
    while kind != before:
        before, kind = kind, re.sub(inner, "int", kind)
    return re.fullmatch(_PLAIN, kind) is not None


def _required(fits: Callable[[str], object], words: str) -> Accepts:
    return lambda spark_type: "" if fits(spark_type) else words


#: Any type that a state can hold.
anything = _required(
    lambda kind: _made_of(f"{_COMPARABLE}|{_MAP}", kind), "a plain type, or arrays, maps and structs of plain types"
)
number_required = _required(lambda kind: kind.split("(", maxsplit=1)[0] in NUMERIC_TYPES, "a number")
#: A type whose values Spark compares by their bytes, or as numbers.
orderable_required = _required(
    lambda kind: _made_of(_COMPARABLE, kind), "a plain type, or arrays and structs of plain types"
)
#: A type that a value can be hashed in as one text.
atomic_required = _required(
    lambda kind: re.fullmatch(_PLAIN, kind), "a column of a plain type, no array, map or struct,"
)
boolean_required = _required(lambda kind: kind == "boolean", "a boolean")
integer_required = _required(lambda kind: kind in INTEGRAL_TYPES, "an integer")
#: What a quantile of is a value again.
quantity_required = _required(
    lambda kind: kind in {"date", "timestamp"} or not number_required(kind), "a number, date or timestamp"
)
#: What ``approx_top_k`` takes in Spark.
top_k_item_required = _required(
    lambda kind: kind != "binary" and not atomic_required(kind),
    "a column of a plain type, no binary, array, map or struct,",
)


def one_of_required(*spark_types: str) -> Accepts:
    """Integers of any width, and these types: what a sketch holds as it is, so that others can merge it."""
    names = ", ".join(("an integer", *spark_types[:-1])) + f" or {spark_types[-1]}"
    return lambda spark_type: "" if spark_type in {*INTEGRAL_TYPES, *spark_types} else names


def decimal_digits(spark_type: str) -> tuple[int, int] | None:
    """Precision and scale of a decimal type; None for any other."""
    found = re.fullmatch(r"decimal\((\d+),\s*(\d+)\)", spark_type)
    return (int(found[1]), int(found[2])) if found else None


_ARROW = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_SPARK = {arrow: spark for spark, arrow in _ARROW.items()}


def arrow_type_of(spark_type: str) -> pa.DataType:
    """The Arrow type of a plain Spark SQL type; that of a string for any other, which ``plain_required`` refuses."""
    digits = decimal_digits(spark_type)
    return pa.decimal128(*digits) if digits else _ARROW.get(spark_type, pa.string())


#: Any type of ``arrow_type_of``.
plain_required = _required(
    lambda kind: kind in _ARROW or decimal_digits(kind), "a boolean, a number, a text, binary, a date or a timestamp"
)


def column_type(_options: Any, spark_type: str) -> pa.DataType:
    """``arrow_type_of``, for aggregates whose options do not matter."""
    return arrow_type_of(spark_type)


def spark_type_of(arrow_type: pa.DataType) -> str:
    """The plain Spark SQL type of an Arrow type; "" for any other."""
    if pa.types.is_decimal(arrow_type):
        return f"decimal({arrow_type.precision},{arrow_type.scale})"
    return _SPARK.get(arrow_type, "")


class ArrowTypes(NamedTuple):
    """The Arrow types of an aggregate whose options and argument columns are known.

    ``argument`` is that of ``values`` in ``update``; a struct where the aggregate has further arguments.
    """

    argument: pa.DataType
    state: pa.DataType
    result: pa.DataType


class GroupsAccumulator(ABC):
    """The states of all keys of a task at once (the term is DataFusion's).

    Rows come as Arrow arrays with one group number per row, so that a million small keys do not
    cost a million Python calls. Groups are numbered from 0; ``groups_total`` only ever grows.
    Arrays may be slices of larger ones, and may be empty. ``state`` and ``evaluate`` change nothing.
    """

    types: ArrowTypes
    """The aggregate's Arrow types, set by ``PythonAggregate.accumulator`` before the first call."""

    @abstractmethod
    def update(self, values: pa.Array, groups: npt.NDArray[np.int64], groups_total: int) -> None:
        """Take in rows, in the order in which they arrived.

        Args:
            values: the argument column, shape ``(rows,)``, with nulls where the row has none. A struct array
                with the fields ``column`` and the names of the options where there are further arguments.
            groups: the group of each row, shape ``(rows,)``.
            groups_total: groups there are now; ``groups < groups_total``.
        """

    @abstractmethod
    def merge(self, states: pa.Array, groups: npt.NDArray[np.int64], groups_total: int) -> None:
        """Take in states that ``state`` gave, of other tasks or stages; null states count as empty.

        Merged into a group that has seen nothing, a state is restored: also where the aggregate is not
        mergeable, and rows that come after it go on from there. States of a ``concatenable`` aggregate come in the
        order of their rows: each is merged into a group that has seen the rows just before.

        Args:
            states: shape ``(states,)``, of the aggregate's state type.
            groups: the group of each state, shape ``(states,)``; one group may have several.
        """

    @abstractmethod
    def state(self) -> pa.Array:
        """One state per group, shape ``(groups_total,)``, of the aggregate's state type."""

    def evaluate(self) -> pa.Array:
        """One result per group, shape ``(groups_total,)``, of the aggregate's result type; by default its state."""
        return self.state()

    def open_keys(self, keys: pa.StringArray, first_group: int) -> None:  # noqa: B027 - most need no set-up
        """New groups are about to come: load what their keys need.

        Called before the first ``update`` or ``merge`` of these groups; each group is opened once. Not called
        ahead of ``evaluate`` where the aggregate is declared with ``open_to_evaluate=False``.

        Args:
            keys: the key text of each new group, null for a null key, shape ``(new groups,)``.
            first_group: the number of the first of them; the others follow.
        """

    def close_keys(self) -> None:  # noqa: B027 - most need no set-up
        """The task is done with all groups: called once, after the last ``state`` or ``evaluate``."""


class Accumulator(ABC):
    """The state of one key: the simple case. ``PerKey`` makes a ``GroupsAccumulator`` of it.

    States and results are plain Python values, as ``pyarrow.array`` takes them for the declared types
    and ``to_pylist`` gives them back.
    """

    @abstractmethod
    def update(self, values: pa.Array) -> None:
        """Take in rows of this key, at least one, in the order in which they arrived."""

    @abstractmethod
    def merge(self, state: Any) -> None:
        """Take in a state that ``state`` gave, never None."""

    @abstractmethod
    def state(self) -> Any:
        """The state so far; None where nothing has been seen is fine."""

    @abstractmethod
    def evaluate(self) -> Any:
        """The result so far."""

    def open_key(self, key: str | None) -> None:  # noqa: B027 - most need no set-up
        """Load what this key needs (its model, its connection); called once, before anything else."""

    def close_key(self) -> None:  # noqa: B027 - most need no set-up
        """Let go of it; called once, after everything else."""


class PerKey(GroupsAccumulator):
    """One Python object per key, which ``factory`` makes. A batch costs one sort, and one call per key that it holds.

    Attributes:
        current_group: the group whose accumulator is at work, for whoever catches what it raises; None between
            the calls.
    """

    def __init__(self, factory: Callable[[], Accumulator]) -> None:
        self._factory = factory
        self._accumulators: list[Accumulator] = []
        self.current_group: int | None = None

    def update(self, values: pa.Array, groups: npt.NDArray[np.int64], groups_total: int) -> None:
        """See ``GroupsAccumulator.update``; the rows of a key stay in order, for the sort is stable."""
        self._reach(groups_total)
        if not len(groups):
            return
        order = np.argsort(groups, kind="stable")
        in_order = groups[order]
        if len(groups) > 1 and in_order[0] != in_order[-1]:
            values = values.take(pa.array(order))
        starts = np.flatnonzero(np.diff(in_order, prepend=-1))
        for start, end in zip(starts.tolist(), [*starts[1:].tolist(), len(groups)], strict=True):
            self.current_group = int(in_order[start])
            self._accumulators[self.current_group].update(values.slice(start, end - start))
        self.current_group = None

    def merge(self, states: pa.Array, groups: npt.NDArray[np.int64], groups_total: int) -> None:
        """See ``GroupsAccumulator.merge``."""
        self._reach(groups_total)
        for one, state in self._at_work(states, groups):
            one.merge(state)

    def state(self) -> pa.Array:
        """See ``GroupsAccumulator.state``."""
        return pa.array([one.state() for one in self._each()], self.types.state)

    def evaluate(self) -> pa.Array:
        """See ``GroupsAccumulator.evaluate``."""
        return pa.array([one.evaluate() for one in self._each()], self.types.result)

    def open_keys(self, keys: pa.StringArray, first_group: int) -> None:
        """Make the accumulators of new keys and open them."""
        self._reach(first_group)
        for group, key in enumerate(keys.to_pylist(), start=first_group):
            self.current_group = group
            accumulator = self._factory()
            accumulator.open_key(key)
            self._accumulators.append(accumulator)
        self.current_group = None

    def close_keys(self) -> None:
        """Close every key."""
        for one in self._each():
            one.close_key()

    def _reach(self, groups_total: int) -> None:
        while len(self._accumulators) < groups_total:
            self._accumulators.append(self._factory())

    def _at_work(self, states: pa.Array, groups: npt.NDArray[np.int64]) -> Iterator[tuple[Accumulator, Any]]:
        for state, group in zip(states.to_pylist(), groups.tolist(), strict=True):
            if state is not None:
                self.current_group = group
                yield self._accumulators[group], state
        self.current_group = None

    def _each(self) -> Iterator[Accumulator]:
        for group, one in enumerate(self._accumulators):
            self.current_group = group
            yield one
        self.current_group = None


Ints = npt.NDArray[np.int64]


def lists_of(groups: Ints, values: pa.Array, groups_total: int) -> pa.Array:
    """So many lists from flat values, whose groups ascend; a list without values is empty."""
    offsets = np.searchsorted(groups, np.arange(groups_total + 1))
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values)


def without_nulls(values: pa.Array, groups: Ints) -> tuple[pa.Array, Ints]:
    """The values that are not null, each with its group."""
    if not values.null_count:
        return values, groups
    there = pc.is_valid(values)
    return values.filter(there), groups[there.to_numpy(zero_copy_only=False)]


def flattened(lists: pa.Array, groups: Ints) -> tuple[Ints, pa.Array]:
    """The values of all lists, each with the group of its list; null lists have none."""
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    return np.repeat(groups, lengths), lists.flatten()
