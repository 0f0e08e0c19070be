"""The definition of an aggregate in Python: its algebra, its options, its arguments, its types."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Self, TypeAlias

import pyarrow as pa
from pydantic import BaseModel

from skewless.aggregates.accumulator import Accepts, Accumulator, ArrowTypes, GroupsAccumulator, PerKey, anything
from skewless.errors import AggregateError, nearest

#: An Arrow type, or what makes one of the validated options and the Spark SQL type of an argument column.
ArrowType: TypeAlias = pa.DataType | Callable[[Any, str], pa.DataType]


class NoOptions(BaseModel, extra="forbid", frozen=True):
    """An aggregate without options."""


@dataclass(frozen=True)
class Argument:
    """A further argument column, which an option names."""

    accepts: Accepts
    arrow_type: ArrowType
    """What Spark casts the column to before ``update``; a callable is given the options and this column's Spark SQL
    type."""


@dataclass(frozen=True, kw_only=True)
class PythonAggregate:
    """An aggregate whose states live in a ``GroupsAccumulator``.

    Three types may depend on options and on the argument column: they are Arrow types, or callables
    ``(options, spark_type) -> pyarrow.DataType``, where ``spark_type`` is that of ``column`` ("" without one).
    """

    name: str
    """As the spec calls it, and as its entry point is called."""
    mergeable: bool
    """Whether the rows of a key may be spread over several accumulators and the states merged, in any order and
    grouping. A hot key of one that is not mergeable stays whole."""
    ordered: bool = False
    """Whether the rows of a key must be seen in the order in which they arrived."""
    concatenable: bool = False
    """Of one that is not mergeable: whether ``merge`` takes the state of the rows that come next. States of consecutive
    stretches of a key's rows, merged in the order of the rows, then give the state of all of them; so a window keeps a
    state of each part, and reads none of its rows again."""
    instead: str = ""
    """Of one that is not mergeable, the name of one that is, and that could serve in its place; "" if there is none."""
    options: type[BaseModel] = NoOptions
    """The pydantic model (strict, frozen, extra="forbid") of its options."""
    accepts: Accepts = anything
    """Says what type of argument is required ("a number") if it does not take a Spark SQL type, which it is called with
    (e.g. "int", "string", "decimal(10,2)"); "" if it does."""
    argument_type: ArrowType
    """The Arrow type that the argument column is cast to (by Spark) before ``update``."""
    state_type: ArrowType
    """Arrow type of a state. States are stored as Parquet in columns of this type."""
    result_type: ArrowType
    create: Callable[[Any], GroupsAccumulator]
    further: Mapping[str, Argument] = field(default_factory=dict)
    """The options that name a further argument column. With any, ``values`` of ``update`` is a struct array with the
    fields ``column`` and these options' names, in this order."""
    needs_column: bool = True
    """Whether it must have an argument. Without one it sees a null per row."""
    state_bytes: int = 64
    """Typical size of a state, for the engine's choice between merging and routing."""
    setup_seconds: float = 0.0
    """What ``open_keys`` costs per key. Where it is much, keys had better stay in few tasks."""
    row_seconds: float | None = None
    """What ``update`` costs per row, about; None where nobody knows. With it, a key's set-up is weighed against its
    rows when keys are placed, and a first stage need not find out."""
    open_to_evaluate: bool = True
    """Whether keys must be open for ``evaluate`` and the merge before it. Where only ``update`` needs what
    ``open_keys`` loads, the last step had better not load it all again."""
    agrees: Callable[[Any, Any, Any, int], bool] | None = None
    """Of one whose result may depend on how its rows were divided and merged: whether two results may be of the same
    rows, both within their stated error. Its arguments are the two results as Python values, the options, and the
    number of rows. None if there is one right result, but for the rounding of a floating-point number."""

    def __post_init__(self) -> None:
        """Refuse an algebra that contradicts itself."""
        if self.concatenable and self.mergeable:
            raise AggregateError(
                f"aggregate {self.name!r}, concatenable=True",
                "mergeable=False",
                "mergeable=True, which says more",
                "leave concatenable out",
            )

    @classmethod
    def per_key(cls, *, create: Callable[[Any], Accumulator], **fields: Any) -> Self:
        """An aggregate of one ``Accumulator`` per key, which ``create`` makes from validated options."""
        return cls(create=lambda options: PerKey(lambda: create(options)), **fields)

    def types(self, options: BaseModel, spark_types: Sequence[str] = ()) -> ArrowTypes:
        """The Arrow types for these options and argument columns.

        ``spark_types`` are those of ``column``, if it has one, then of the columns that ``further`` names, in its
        order; empty where no type depends on them.
        """
        own_count = max(0, len(spark_types) - len(self.further))
        own = spark_types[0] if own_count else ""
        argument = _resolved(self.argument_type, options, own)
        if self.further:
            others = spark_types[own_count:] or [""] * len(self.further)
            fields = [
                (name, _resolved(one.arrow_type, options, spark_type))
                for (name, one), spark_type in zip(self.further.items(), others, strict=True)
            ]
            argument = pa.struct([("column", argument), *fields])
        return ArrowTypes(argument, _resolved(self.state_type, options, own), _resolved(self.result_type, options, own))

    def accumulator(self, options: BaseModel, spark_types: Sequence[str] = ()) -> GroupsAccumulator:
        """A fresh accumulator that knows its types; arguments as for ``types``."""
        created = self.create(options)
        created.types = self.types(options, spark_types)
        return created


def _resolved(arrow_type: ArrowType, options: BaseModel, spark_type: str) -> pa.DataType:
    return arrow_type(options, spark_type) if callable(arrow_type) else arrow_type


#: An entry point of this group is ``NAME = "MODULE:OBJECT"``, where the object is a ``PythonAggregate`` of that name.
ENTRY_POINT_GROUP = "skewless.aggregates"


class RegisteredAggregates(Mapping[str, PythonAggregate]):
    """What entry points register: by default those of all installed packages, which are then looked up late.

    An aggregate is imported when it is first asked for, and no other is.
    """

    def __init__(self, found: Iterable[EntryPoint] | None = None) -> None:
        self._found = found
        self._loaded: dict[str, PythonAggregate] = {}

    def __getitem__(self, name: str) -> PythonAggregate:
        """The aggregate of a name; an ``AggregateError`` if two packages registered it, or it is none of that name."""
        if name not in self._loaded:
            self._loaded[name] = _loaded(name, self._points[name])
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        """All names, sorted."""
        return iter(sorted(self._points))

    def __len__(self) -> int:
        """How many names there are."""
        return len(self._points)

    def __contains__(self, name: object) -> bool:
        """Whether a name is registered; loads nothing."""
        return name in self._points

    def look_again(self) -> None:
        """Forget what was found: packages may have been installed since, or the path may have changed."""
        self.__dict__.pop("_points", None)
        self._loaded.clear()

    def registered_as(self, name: str) -> str:
        """Where the name points, for messages: ``module:OBJECT``, of each that has it."""
        return " and ".join(_told(point) for point in self._points[name])

    @cached_property
    def _points(self) -> dict[str, list[EntryPoint]]:
        found = entry_points(group=ENTRY_POINT_GROUP) if self._found is None else self._found
        points: dict[str, list[EntryPoint]] = {}
        for point in found:
            same = points.setdefault(point.name, [])
            if all(point.value != other.value for other in same):  # one package found on two paths is one
                same.append(point)
        return points


def _loaded(name: str, points: list[EntryPoint]) -> PythonAggregate:
    where = f"aggregate {name!r}"
    if len(points) > 1:
        came = " and ".join(_told(point) for point in points)
        raise AggregateError(where, "one package that registers it", came, "uninstall one, or rename its entry point")
    (point,) = points
    at = f"{where}, registered as {_told(point)}"
    try:
        loaded = point.load()
    except Exception as err:
        came = f"{type(err).__name__}: {err}"
        raise AggregateError.saying(at, f"it cannot be imported ({came})", "mend or uninstall the package") from err
    if not isinstance(loaded, PythonAggregate):
        kind = loaded.__name__ if isinstance(loaded, type) else type(loaded).__name__
        hint = "register an instance, MODULE:OBJECT"
        raise AggregateError(at, "a skewless.aggregates.PythonAggregate", f"a {kind}", hint)
    if loaded.name != name:
        raise AggregateError(at, f"an aggregate of the name {name!r}", repr(loaded.name), nearest(name, [loaded.name]))
    return loaded


def _told(point: EntryPoint) -> str:
    package = f" of {point.dist.name}" if point.dist else ""
    return f"{point.value}{package}"
