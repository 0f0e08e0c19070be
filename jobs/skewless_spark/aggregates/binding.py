"""Binding a spec's aggregate calls to registered aggregates and to typed input columns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

from pydantic import BaseModel, ValidationError
from pyspark.sql import SparkSession

from skewless.aggregates.accumulator import Accepts, ArrowTypes, anything
from skewless.aggregates.python_aggregate import Argument, PythonAggregate
from skewless.document import sentence_of
from skewless.documents.job import Algebra, Job
from skewless.errors import InputError, SpecError, nearest
from skewless.spec.calls import AggregateCall
from skewless.spec.spec import JobSpec
from skewless_spark.aggregates import REGISTRY, Aggregate
from skewless_spark.aggregates.definition import NativeAggregate
from skewless_spark.aggregates.native import NATIVE_AGGREGATES
from skewless_spark.aggregates.native.spark_calls import SPARK, SparkOptions, require_analyzed
from skewless_spark.session.versions import lacking_aggregate
from skewless_spark.sources.formats.column_types import EMPTY_COLUMN_TYPE, UNSUPPORTED

#: Seconds of one core that Spark needs to add a row to a native state. This is a sketch's; a sum needs less. Only the
#: order of magnitude matters, in comparison with the cost of a stage.
NATIVE_ROW_SECONDS = 1e-6


#: What an aggregate is defined as.
D_co = TypeVar("D_co", bound=Aggregate, covariant=True)


@dataclass(frozen=True)
class BoundAggregate(Generic[D_co]):
    """An aggregate of a job, with its definition, validated options and arguments."""

    name: str
    definition: D_co
    options: BaseModel
    columns: tuple[str, ...]
    """The input columns that it reads: first ``column``, if it has one, then those that its options name."""
    spark_types: tuple[str, ...]

    @property
    def spark_type(self) -> str:
        """The Spark SQL type of ``column``; "" if there is no column."""
        return self.spark_types[0] if self.spark_types else ""

    @property
    def counts_rows(self) -> bool:
        """Whether it has no state of its own: its result is the number of rows of its key."""
        return _counts_rows(self.definition, self.columns)

    @property
    def arrow_types(self) -> ArrowTypes:
        """The Arrow types of a Python aggregate with these options and columns."""
        if not isinstance(self.definition, PythonAggregate):
            raise TypeError(f"{self.definition.name} is native: its states are Spark SQL columns")
        return self.definition.types(self.options, self.spark_types)


def check_calls(spec: JobSpec, where: str) -> None:
    """Check what needs no input: functions, options, and whether a column is named."""
    for name, call in spec.aggregates.items():
        _definition_and_options(name, call, where)


def check_spark_calls(spark: SparkSession, spec: JobSpec, types: Mapping[str, str], where: str) -> None:
    """Let Spark analyze the calls that it computes itself."""
    for name, call in spec.aggregates.items():
        definition, options = _definition_and_options(name, call, where)
        if definition is SPARK:
            require_analyzed(spark, cast("SparkOptions", options), types, f"{where}, aggregate {name!r}")


def bind(job: Job) -> list[BoundAggregate[Aggregate]]:
    """The aggregates of a frozen job, in the order of its spec."""
    types = {**job.key_types, **job.column_types}
    bound = []
    for name, call in job.spec.aggregates.items():
        definition, options = _definition_and_options(name, call, "job.json")
        columns = tuple(column for column, _ in _arguments(call, definition, options))
        bound.append(BoundAggregate(name, definition, options, columns, tuple(types[one] for one in columns)))
    return bound


def argument_columns(spec: JobSpec) -> list[str]:
    """The input columns that the aggregates of a checked spec read, each once."""
    return list(_takers(spec))


def assumed_types(spec: JobSpec) -> dict[str, str]:
    """A type for each argument column of an input without a schema: one that all aggregates of the column accept.

    If no type suits all of them, the column gets the first type, and ``check_types`` refuses it.
    """
    return {
        column: next((kind for kind in _ASSUMED if not any(accepts(kind) for accepts in takers)), _ASSUMED[0])
        for column, takers in _takers(spec).items()
    }


#: Types that a column without a schema may be assumed to have. Every aggregate accepts at least one of them.
_ASSUMED = (EMPTY_COLUMN_TYPE, "boolean", "string")


def check_types(spec: JobSpec, types: Mapping[str, str], where: str) -> dict[str, Algebra]:
    """Check the calls against the columns of the input.

    Returns:
        The algebra of each aggregate.
    """
    algebra = {}
    for name, call in spec.aggregates.items():
        definition, options = _definition_and_options(name, call, where)
        arguments = _arguments(call, definition, options)
        for column, accepts in arguments:
            _check_column(f"{where}, aggregate {name!r}", call, column, accepts, types)
        counts_rows = _counts_rows(definition, arguments)
        row_seconds = NATIVE_ROW_SECONDS if isinstance(definition, NativeAggregate) else definition.row_seconds
        algebra[name] = Algebra(
            mergeable=definition.mergeable,
            ordered=definition.ordered,
            at_once=getattr(definition, "at_once", False),
            state_bytes=0 if counts_rows else definition.state_bytes,
            setup_seconds=getattr(definition, "setup_seconds", 0.0),
            row_seconds=0.0 if counts_rows else row_seconds,
            reads=tuple(column for column, _ in arguments),
        )
    return algebra


def _definition_and_options(name: str, call: AggregateCall, where: str) -> tuple[Aggregate, BaseModel]:
    at = f"{where}, aggregate {name!r}"
    definition = REGISTRY.get(call.function)
    if definition is None:
        raise SpecError(at, "a known aggregate", repr(call.function), nearest(call.function, REGISTRY))
    if lacking := lacking_aggregate(call.function):
        raise SpecError(at, *lacking)
    if call.column is None and definition.needs_column:
        raise SpecError(at, f"a column for {call.function}", "none", "add 'column: ...'")
    if call.publish == "state":
        definition = _published(definition, call.function, at)
    return definition, _options(at, definition.options, call.options)


def _published(definition: Aggregate, function: str, at: str) -> NativeAggregate:
    if isinstance(definition, NativeAggregate) and definition.published is not None:
        return definition.published
    sketches = (one.name for one in NATIVE_AGGREGATES if one.published is not None)
    required = f"result, or state for one of {', '.join(sketches)}"
    raise SpecError(f"{at}, field publish", required, f"state for {function}")


def serves_instead(definition: Aggregate) -> str | None:
    """The name of an aggregate that could serve where only a mergeable one will do; None if nobody knows one."""
    if definition.mergeable:
        return None
    return definition.instead or None if isinstance(definition, PythonAggregate) else None


def concatenable(definition: Aggregate) -> bool:
    """Whether states of consecutive rows of a key can be merged in the order of the rows."""
    return definition.mergeable or (isinstance(definition, PythonAggregate) and definition.concatenable)


def _counts_rows(definition: Aggregate, arguments: Sequence[object]) -> bool:
    return isinstance(definition, NativeAggregate) and definition.of_rows and not arguments


def _options(at: str, model: type[BaseModel], given: Mapping[str, Any]) -> BaseModel:
    known = ["column", "function", "publish", *model.model_fields]
    unknown = next((option for option in given if option not in known), None)
    if unknown is not None:
        raise SpecError(at, "a known option", repr(unknown), nearest(unknown, known))
    try:
        return model.model_validate(dict(given))
    except ValidationError as err:
        raise sentence_of(err, model, at, SpecError) from None


def _arguments(call: AggregateCall, definition: Aggregate, options: BaseModel) -> list[tuple[str, Accepts]]:
    """The argument columns of a call in order, each with the function that accepts or refuses a type."""
    own = [] if call.column is None else [(call.column, definition.accepts)]
    further = [(str(getattr(options, name)), one.accepts if isinstance(one, Argument) else one)
               for name, one in definition.further.items()]  # fmt: skip
    named = definition.named(options) if isinstance(definition, NativeAggregate) else ()
    return [*own, *further, *((column, anything) for column in named)]


def _takers(spec: JobSpec) -> dict[str, list[Accepts]]:
    takers: dict[str, list[Accepts]] = {}
    for name, call in spec.aggregates.items():
        for column, accepts in _arguments(call, *_definition_and_options(name, call, "spec")):
            takers.setdefault(column, []).append(accepts)
    return takers


def _check_column(at: str, call: AggregateCall, column: str, accepts: Accepts, types: Mapping[str, str]) -> None:
    if column not in types:
        raise InputError(at, "an existing column", repr(column), nearest(column, types))
    unsupported = types[column].startswith(UNSUPPORTED)
    required = "a type that Spark reads" if unsupported else accepts(types[column])
    if required:
        state = call.publish == "state"
        raise InputError(
            at, f"{required} for {call.function}{' with publish: state' if state else ''}",
            f"column {column!r} of type {types[column]}",
            "cast it in the map step, or choose another column" if state else "choose another column or aggregate",
        )  # fmt: skip
