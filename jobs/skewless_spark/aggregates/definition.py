"""Native aggregates: expressions of Spark SQL. Python aggregates are ``skewless.aggregates.PythonAggregate``."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel
from pyspark.sql import Column

from skewless.aggregates.accumulator import Accepts
from skewless.aggregates.python_aggregate import NoOptions, PythonAggregate, RegisteredAggregates


@dataclass(frozen=True)
class Arguments:
    """What the update of a native aggregate sees: expressions over the rows of a task.

    Rows beyond the stage's budget are among them, and must not count.
    """

    columns: tuple[Column, ...]
    """The argument columns, first ``column``, then those that options name; null in a row that does not count. An
    aggregate without an argument gets a constant."""
    names: tuple[str, ...]
    """The names of the same columns in SQL, with values in every row, whether it counts or not."""
    spark_types: tuple[str, ...]
    origin: Column
    """Ascending in the order of the input and different in every row; null in a row that does not count."""
    counts: str
    """In SQL, whether a row counts."""


@dataclass(frozen=True)
class NativeAggregate:
    """An aggregate whose update, merge and evaluate are Spark SQL expressions over typed columns."""

    name: str
    accepts: Accepts
    """Empty for a Spark SQL type that the argument may have; else the kind of type that is required."""
    update: Callable[[Arguments, Any], Sequence[Column]]
    """Aggregate expressions, one per state column, over the rows of a task."""
    merge: Callable[[Sequence[str], Any, str], Sequence[Column]]
    """Aggregate expressions over the named state columns, one per state column; a null state counts as no state. Its
    last argument is the Spark SQL type of ``column``."""
    evaluate: Callable[[Sequence[Column], Any, str], Column]
    """The result, from the merged state columns. Its last argument is the Spark SQL type of ``column``."""
    options: type[BaseModel] = NoOptions
    further: Mapping[str, Accepts] = field(default_factory=dict)
    """The options that name further argument columns, in order, each with the types that it accepts."""
    named: Callable[[Any], Sequence[str]] = lambda _: ()
    """Further argument columns, by the options; they may have any type that a state can hold."""
    needs_column: bool = True
    mergeable: bool = True
    at_once: bool = False
    """Of one that is not mergeable: whether its state is made of all rows of a key in one stage."""
    ordered: bool = False
    state_bytes: int = 16
    """As for ``PythonAggregate``, for a key with few rows, as most keys have."""
    of_rows: bool = False
    """Whether its result without a column is the number of rows, which the states of a key have anyway."""
    reads_origin: bool = False
    """Whether its update reads ``Arguments.origin``, so that rows must have one."""
    combines_exactly: Callable[[Sequence[str]], bool] = lambda _: False
    """Whether, for arguments of some Spark SQL types, a state is never larger than a row or two, and merging states in
    any order gives the same bits. Then Spark may combine states before they are sent."""
    any_order: bool = False
    """Whether merging states in any order gives the same bits, or a sketch within its stated error, also where
    ``combines_exactly`` is not true."""
    agrees: Callable[[Column, Sequence[Column], Any, str, Column], Column] | None = None
    """Of one whose result may depend on how its rows were divided and merged: whether a result may be of the rows that
    a state saw, both within their stated error. Its arguments are the result, the state columns, the options, the Spark
    SQL type of ``column``, and the number of rows. None if there is one right result, but for the rounding of
    floating-point numbers."""
    shown: Callable[[Column, Any, str], Column] = lambda result, _, __: result
    """The result in a report, where it is not for people itself. Arguments as for ``evaluate``, but the result."""
    published: "NativeAggregate | None" = None
    """With ``publish: state``, the aggregate in its place, whose result is the bytes of a sketch."""


log = logging.getLogger(__name__)

Aggregate = NativeAggregate | PythonAggregate


class AggregateRegistry(Mapping[str, Aggregate]):
    """Every aggregate by its name. A Python aggregate is imported at its first use.

    Args:
        native: the native aggregates, which take precedence: ``sum`` is Spark's, whatever packages register.
    """

    def __init__(self, native: Iterable[NativeAggregate], registered: RegisteredAggregates) -> None:
        self._native = {one.name: one for one in native}
        self._registered = registered
        self._told: set[str] = set()

    def __getitem__(self, name: str) -> Aggregate:
        """The aggregate of a name. A registered name that a native aggregate has already is logged once."""
        if name not in self._native:
            return self._registered[name]
        if name in self._registered and name not in self._told:
            self._told.add(name)
            log.warning(
                "aggregate %r: expected a name that no native aggregate has, but got %s; the native one is used: "
                "rename the entry point.",
                name,
                self._registered.registered_as(name),
            )
        return self._native[name]

    def look_again(self) -> None:
        """See ``RegisteredAggregates.look_again``."""
        self._registered.look_again()

    def __iter__(self) -> Iterator[str]:
        """All names: native ones first."""
        yield from self._native
        yield from (name for name in self._registered if name not in self._native)

    def __len__(self) -> int:
        """How many names there are."""
        return sum(1 for _ in self)

    def __contains__(self, name: object) -> bool:
        """Whether there is an aggregate of that name; imports nothing."""
        return name in self._native or name in self._registered
