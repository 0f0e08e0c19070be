"""What an aggregate is, to the rest of the Spark face: its algebra, its types, its states."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import BaseModel
from pyspark.sql import Column


class GroupsAccumulator(ABC):
    """The states of all keys of a task at once (the term is DataFusion's).

    Rows come as Arrow arrays with one group number per row, so that a million small keys do not
    cost a million Python calls. Groups are numbered from 0; ``groups_total`` only ever grows.
    """

    @abstractmethod
    def update(self, values: pa.Array, groups: npt.NDArray[np.int64], groups_total: int) -> None:
        """Take in rows.

        Args:
            values: the argument column, shape ``(rows,)``, with nulls where the row has none.
            groups: the group of each row, shape ``(rows,)``.
            groups_total: groups there are now; ``groups < groups_total``.
        """

    @abstractmethod
    def merge(self, states: pa.Array, groups: npt.NDArray[np.int64], groups_total: int) -> None:
        """Take in states that ``state`` gave, of other tasks or stages; null states count as empty."""

    @abstractmethod
    def state(self) -> pa.Array:
        """One state per group, shape ``(groups_total,)``, of the aggregate's ``state_type``."""

    @abstractmethod
    def evaluate(self) -> pa.Array:
        """One result per group, shape ``(groups_total,)``, of the aggregate's ``result_type``."""


@dataclass(frozen=True)
class PythonAggregate:
    """An aggregate whose states live in a ``GroupsAccumulator``.

    Attributes:
        name: as the spec calls it.
        mergeable: whether states of the same key may be merged, in any order.
        ordered: whether the rows of a key must be seen in arrival order.
        options: the pydantic model (strict) of its options.
        accepts: says what is wrong with an argument of a Spark SQL type ("" if nothing is),
            as in "a number"; called with e.g. "int", "string", "decimal(10,2)".
        argument_type: the Arrow type that the argument column is cast to (by Spark) before ``update``.
        state_type: Arrow type of a state.
        result_type: Arrow type of a result.
        create: a fresh accumulator from validated options.
    """

    name: str
    mergeable: bool
    ordered: bool
    options: type[BaseModel]
    accepts: Callable[[str], str]
    argument_type: pa.DataType
    state_type: pa.DataType
    result_type: pa.DataType
    create: Callable[[Any], GroupsAccumulator]


class NoOptions(BaseModel, extra="forbid", frozen=True):
    """An aggregate without options."""


@dataclass(frozen=True)
class Arguments:
    """What the update of a native aggregate sees: expressions over the rows of a task.

    A row that the budget does not reach is there too, and must not count.

    Attributes:
        columns: the argument columns, ``column`` first, then those that options name; null in a row that does
            not count. An aggregate without an argument has a constant.
        names: the same columns as SQL can call them, whether the row counts or not.
        spark_types: their Spark SQL types.
        origin: ascends in the order of the input, no two rows have the same; null in a row that does not count.
        counts: whether a row counts, as SQL can call it.
    """

    columns: tuple[Column, ...]
    names: tuple[str, ...]
    spark_types: tuple[str, ...]
    origin: Column
    counts: str


@dataclass(frozen=True)
class NativeAggregate:
    """An aggregate whose update, merge and evaluate are Spark SQL expressions over typed columns.

    Attributes:
        name: as in Spark SQL.
        accepts: says what type of argument is required if it does not take a Spark SQL type; "" if it does.
        update: aggregate expressions, one per state column, over the rows of a task.
        merge: aggregate expressions over the named state columns, one per state column; a state may be null,
            which counts as none. Also told the argument's Spark SQL type.
        evaluate: the result, from the merged state columns; also told the argument's Spark SQL type.
        options: the pydantic model of its options.
        further: the options that name a further argument column, in order, with what that column accepts.
        needs_column: whether it must have an argument.
        mergeable: as for ``PythonAggregate``.
        ordered: as for ``PythonAggregate``.
    """

    name: str
    accepts: Callable[[str], str]
    update: Callable[[Arguments, Any], Sequence[Column]]
    merge: Callable[[Sequence[str], Any, str], Sequence[Column]]
    evaluate: Callable[[Sequence[Column], Any, str], Column]
    options: type[BaseModel] = NoOptions
    further: Mapping[str, Callable[[str], str]] = field(default_factory=dict)
    needs_column: bool = True
    mergeable: bool = True
    ordered: bool = False


NUMERIC_TYPES = ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal")


def number_required(spark_type: str) -> str:
    """For ``accepts``: any numeric type."""
    return "" if spark_type.split("(", maxsplit=1)[0] in NUMERIC_TYPES else "a number"
