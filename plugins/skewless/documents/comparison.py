"""How a result differs from another one, key by key, and the same in words."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from skewless.document import Count, Document, Frozen
from skewless.errors import QualityError, counted
from skewless.spec.shadow import Shadow


class Sides(Frozen):
    """A value of both results, as text."""

    here: str
    there: str


class DifferingKey(Frozen):
    """A key that differs.

    Attributes:
        state: ``only here``, ``only there`` or ``twice there``; empty if each result has it once.
    """

    key: dict[str, str]
    state: str = ""
    columns: dict[str, Sides] = Field(default_factory=dict)

    def __str__(self) -> str:
        columns = [f"{name} {both.here} here, {both.there} there" for name, both in self.columns.items()]
        key = ", ".join(f"{name} {value}" for name, value in self.key.items())
        return f"{key}: {'; '.join([self.state, *columns] if self.state else columns)}"


class Comparison(Document):
    """How a result differs from another one.

    Attributes:
        beside: the other result, as it was named.
        keys: how many keys there are in either.
        differ: how many of them differ in any way.
        twice_there: how many have several rows in the other result.
        columns: for each aggregate that both have, how many keys have another value: of exact ones any other one, of
            floats see ``tolerance``, of approximate ones a value that is further away than both stated errors.
        within_error: the aggregates that are compared within their stated errors.
        types: the aggregates whose types cannot be compared: ours and theirs.
        examples: the first keys that differ.
        tolerance: of floating-point numbers, relative to the larger one.
    """

    beside: str
    keys: Count
    differ: Count
    only_here: Count
    only_there: Count
    twice_there: Count
    columns: dict[str, Count]
    within_error: tuple[str, ...]
    lacking: tuple[str, ...]
    types: dict[str, tuple[str, str]]
    more: tuple[str, ...]
    examples: tuple[DifferingKey, ...]
    tolerance: float = Field(ge=0)
    seconds: float = Field(ge=0)

    @property
    def found(self) -> bool:
        """Whether anything differs."""
        return bool(self.differ or self.lacking or self.types)

    @property
    def verdict(self) -> str:
        """All of it in a line: how many keys differ, and how many columns could not be compared."""
        untold = len(self.lacking) + len(self.types)
        more = f", {untold:,} columns are lacking or of another type" if untold else ""
        return f"{counted(self.keys, 'key')}, {self.differ:,} differ{more}"

    @property
    def facts(self) -> Iterator[str]:
        """What differs, a line each, without the keys: first how many keys, then where."""
        for count, words in (
            (self.only_here, "not in the other result"),
            (self.only_there, "in the other result only"),
            (self.twice_there, "with several rows in the other result"),
        ):
            if count:
                yield f"{counted(count, 'key')} {words}"
        for name, count in self.columns.items():
            within = " by more than both stated errors" if name in self.within_error else ""
            yield f"{name}: {counted(count, 'key')} differ{'s' if count == 1 else ''}{within}"
        for name in self.lacking:
            yield f"{name}: the other result has no such column"
        for name, (ours, theirs) in self.types.items():
            yield f"{name}: {theirs} in the other result, {ours} here, which cannot be compared (a query may cast it)"
        if self.more:
            yield f"not compared: {', '.join(self.more)}, which only the other result has"

    @property
    def lines(self) -> Iterator[str]:
        """The report, a line each."""
        yield self.verdict
        yield from self.facts
        yield from map(str, self.examples)

    def allowed_by(self, shadow: Shadow | None) -> bool:
        """Whether the spec lets a run end well with what differs."""
        return not (self.found and shadow is not None and shadow.differences == "fail")

    def require_allowed(self, shadow: Shadow | None, where: str) -> None:
        """Refuse differences where the spec says that they fail the run.

        Raises:
            QualityError: says how many there are.
        """
        if not self.allowed_by(shadow):
            raise QualityError.saying(
                where, f"{self.verdict} beside {self.beside}", "nothing was published; skewless show names the keys"
            )
