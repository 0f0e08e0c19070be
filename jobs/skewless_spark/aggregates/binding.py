"""Binding a spec's aggregate calls to registered aggregates and to typed input columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError

from skewless.document import sentence_of
from skewless.errors import InputError, SpecError, nearest
from skewless.job import Algebra, Job
from skewless.spec import AggregateCall, JobSpec
from skewless_spark.aggregates import REGISTRY, Aggregate
from skewless_spark.aggregates.definition import NativeAggregate, PythonAggregate
from skewless_spark.sources import UNSUPPORTED


@dataclass(frozen=True)
class BoundAggregate:
    """An aggregate of a job: its definition, its validated options, its argument.

    Attributes:
        name: the result column.
        definition: what it does.
        options: an instance of ``definition.options``.
        column: the input column, if it has one.
        spark_type: that column's Spark SQL type; "" without a column.
    """

    name: str
    definition: Aggregate
    options: BaseModel
    column: str | None
    spark_type: str


def check_calls(spec: JobSpec, where: str) -> None:
    """Check what can be said without the input: functions, options, whether a column is named.

    Raises:
        SpecError: names the aggregate and what to change.
    """
    for name, call in spec.aggregates.items():
        _definition_and_options(name, call, where)


def bind(job: Job) -> list[BoundAggregate]:
    """The aggregates of a frozen job, in the order of its spec."""
    types = {**job.key_types, **job.column_types}
    bound = []
    for name, call in job.spec.aggregates.items():
        definition, options = _definition_and_options(name, call, "job.json")
        kind = types[call.column] if call.column else ""
        bound.append(BoundAggregate(name, definition, options, call.column, kind))
    return bound


def check_types(spec: JobSpec, types: Mapping[str, str], where: str) -> dict[str, Algebra]:
    """Hold the calls to the input's columns.

    Args:
        spec: the spec, its calls already checked.
        types: Spark SQL type of each column of the input.
        where: the input, for the message.

    Returns:
        The algebra of each aggregate.

    Raises:
        InputError: a column is missing or has a type the aggregate does not take.
    """
    algebra = {}
    for name, call in spec.aggregates.items():
        definition, _ = _definition_and_options(name, call, where)
        if call.column is not None:
            _check_column(name, call, definition, types, where)
        algebra[name] = Algebra(mergeable=definition.mergeable, ordered=definition.ordered)
    return algebra


def native_of(bound: list[BoundAggregate]) -> list[BoundAggregate]:
    """Those whose states are Spark SQL columns."""
    return [one for one in bound if isinstance(one.definition, NativeAggregate)]


def python_of(bound: list[BoundAggregate]) -> list[BoundAggregate]:
    """Those whose states live in a ``GroupsAccumulator``."""
    return [one for one in bound if isinstance(one.definition, PythonAggregate)]


def _definition_and_options(name: str, call: AggregateCall, where: str) -> tuple[Aggregate, BaseModel]:
    at = f"{where}, aggregate {name!r}"
    definition = REGISTRY.get(call.function)
    if definition is None:
        raise SpecError(at, "a known aggregate", repr(call.function), nearest(call.function, REGISTRY))
    if call.column is None and getattr(definition, "needs_column", True):
        raise SpecError(at, f"a column for {call.function}", "none", "add 'column: ...'")
    return definition, _options(at, definition.options, call.options)


def _options(at: str, model: type[BaseModel], given: Mapping[str, Any]) -> BaseModel:
    known = ["column", "function", *model.model_fields]
    unknown = next((option for option in given if option not in known), None)
    if unknown is not None:
        raise SpecError(at, "a known option", repr(unknown), nearest(unknown, known))
    try:
        return model.model_validate(dict(given))
    except ValidationError as err:
        raise sentence_of(err, model, at, SpecError) from None


def _check_column(name: str, call: AggregateCall, definition: Aggregate, types: Mapping[str, str], where: str) -> None:
    column = str(call.column)
    if column not in types:
        raise InputError(f"{where}, aggregate {name!r}", "an existing column", repr(column), nearest(column, types))
    unsupported = types[column].startswith(UNSUPPORTED)
    required = "a type that Spark reads" if unsupported else definition.accepts(types[column])
    if required:
        raise InputError(
            f"{where}, aggregate {name!r}", f"{required} for {call.function}",
            f"column {column!r} of type {types[column]}", "choose another column or aggregate",
        )  # fmt: skip
