"""The Python aggregates of installed packages, by name: nothing is ever imported by a string from a spec."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points

from skewless.aggregates.python_aggregate import PythonAggregate
from skewless.errors import AggregateError, nearest

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
