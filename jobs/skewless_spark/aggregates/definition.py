"""Native aggregates: expressions of Spark SQL. Python aggregates are ``skewless.aggregates.PythonAggregate``."""

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

    Rows beyond the stage's budget are among them, and must not count.

    Attributes:
        columns: the argument columns, first ``column``, then those that options name; null in a row that does
            not count. An aggregate without an argument gets a constant.
        names: the names of the same columns in SQL, with values in every row, whether it counts or not.
        origin: ascending in the order of the input and different in every row; null in a row that does not count.
        counts: in SQL, whether a row counts.
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
        accepts: "" for a Spark SQL type that the argument may have; else the kind of type that is required.
        update: aggregate expressions, one per state column, over the rows of a task.
        merge: aggregate expressions over the named state columns, one per state column; a null state counts as no
            state. Its last argument is the Spark SQL type of ``column``.
        evaluate: the result, from the merged state columns. Its last argument is the Spark SQL type of ``column``.
        further: the options that name further argument columns, in order, each with the types that it accepts.
        state_bytes: as for ``PythonAggregate``, for a key with few rows, as most keys have.
        of_rows: whether its result without a column is the number of rows, which the states of a key have anyway.
        reads_origin: whether its update reads ``Arguments.origin``, so that rows must have one.
        combines_exactly: whether, for arguments of some Spark SQL types, a state is never larger than a row or two, and
            merging states in any order gives the same bits. Then Spark may combine states before they are sent.
        any_order: whether merging states in any order gives the same bits, or a sketch within its stated error, also
            where ``combines_exactly`` is not true.
        agrees: of one whose result may depend on how its rows were divided and merged: whether a result may be of the
            rows that a state saw, both within their stated error. Its arguments are the result, the state columns,
            the options, the Spark SQL type of ``column``, and the number of rows. None if there is one right result,
            but for the rounding of floating-point numbers.
        shown: the result in a report, where it is not for people itself. Arguments as for ``evaluate``, but the result.
        published: with ``publish: state``, the aggregate in its place, whose result is the bytes of a sketch.
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
    of_rows: bool = False
    reads_origin: bool = False
    combines_exactly: Callable[[Sequence[str]], bool] = lambda _: False
    any_order: bool = False
    agrees: Callable[[Column, Sequence[Column], Any, str, Column], Column] | None = None
    shown: Callable[[Column, Any, str], Column] = lambda result, _, __: result
    published: NativeAggregate | None = None
