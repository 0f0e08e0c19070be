"""What a native aggregate is: expressions of Spark SQL. Those in Python are ``skewless.aggregates.PythonAggregate``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel
from pyspark.sql import Column

from skewless.aggregates.argument_types import Accepts
from skewless.aggregates.python_aggregate import NoOptions


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
        state_bytes: as for ``PythonAggregate``, of a key with few rows: most keys are such.
        reads_origin: whether its update looks at ``Arguments.origin``, so that rows must have one.
    """

    name: str
    accepts: Accepts
    update: Callable[[Arguments, Any], Sequence[Column]]
    merge: Callable[[Sequence[str], Any, str], Sequence[Column]]
    evaluate: Callable[[Sequence[Column], Any, str], Column]
    options: type[BaseModel] = NoOptions
    further: Mapping[str, Accepts] = field(default_factory=dict)
    needs_column: bool = True
    mergeable: bool = True
    ordered: bool = False
    state_bytes: int = 16
    reads_origin: bool = False
