"""One registry of native aggregates and of the Python aggregates that packages register."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping

from skewless.aggregates.python_aggregate import PythonAggregate
from skewless.aggregates.registered import RegisteredAggregates
from skewless_spark.aggregates.definition import NativeAggregate

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
        """The aggregate of a name. A registered name that a native aggregate has already is logged once.

        Raises:
            KeyError: there is none.
            AggregateError: it is registered twice, or what is registered is no aggregate of that name.
        """
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
