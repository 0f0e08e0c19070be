"""What a benchmark was meant to show, and whether it does."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

#: Figures (medians) by cell and peer.
Medians = Mapping[tuple[str, str], Mapping[str, float]]


@dataclass(frozen=True)
class Verdict:
    """One aim in one cell, and how it went.

    Attributes:
        aim: in words.
        cell: where.
        figure: what was measured; null where a peer or a figure is missing.
        limit: inclusive.
        at_least: whether the limit is a lower one.
    """

    aim: str
    cell: str
    figure: float | None
    limit: float
    at_least: bool = False

    @property
    def met(self) -> bool:
        """Whether the limit is kept; a figure that could not be measured keeps none."""
        if self.figure is None or math.isnan(self.figure):
            return False
        return self.figure >= self.limit if self.at_least else self.figure <= self.limit

    @property
    def words(self) -> str:
        """The verdict in one line."""
        side = "at least" if self.at_least else "at most"
        came = "not measured" if self.figure is None else f"{self.figure:.3g}"
        return f"{'met' if self.met else 'MISSED'}: {self.cell}: {self.aim}, {side} {self.limit:g}; {came}"


def as_documents(verdicts: Iterable[Verdict]) -> list[dict[str, Any]]:
    """The verdicts as the documents of results have them."""
    return [{**asdict(one), "met": one.met, "words": one.words} for one in verdicts]


def ratio(medians: Medians, cell: str, over: str, under: str, figure: str = "wall_seconds") -> float | None:
    """A figure of one peer over that of another, in one cell."""
    above, below = value(medians, cell, over, figure), value(medians, cell, under, figure)
    return above / below if above is not None and below else None


def value(medians: Medians, cell: str, peer: str, figure: str) -> float | None:
    """A figure of a peer in a cell, if it was measured."""
    return medians.get((cell, peer), {}).get(figure)
