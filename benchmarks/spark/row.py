"""A row of the benchmarks: its cells, its peers, its aims."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from benchmarks.spark.cell import Cell, Peer
from benchmarks.verdicts import Medians, Verdict


class Size(NamedTuple):
    """How much is measured.

    Attributes:
        scale: the share of the full size.
        long: whether B2 takes 60 seconds of ideal time instead of 15.
    """

    scale: float = 1.0
    long: bool = False

    def rows(self, full: int) -> int:
        """So many rows at this scale, at least some."""
        return max(600, round(full * self.scale))

    def keys(self, full: int) -> int:
        """So many keys, where their number belongs to the size."""
        return max(50, round(full * self.scale))


@dataclass(frozen=True)
class Row:
    """A row.

    Attributes:
        ident: ``B1``.
        title: what it asks.
        text: what is measured how, for the page.
        slots: of the session; for emulated costs more than there are cores.
        cells: at a size.
        peers: for a cell, ours among them.
        aims: judged on medians.
        plotted: the figure that its plot shows.
    """

    ident: str
    title: str
    text: str
    slots: int
    cells: Callable[[Size], Sequence[Cell]]
    peers: Callable[[Cell], Sequence[Peer]]
    aims: Callable[[Medians, Sequence[Cell]], Sequence[Verdict]]
    plotted: str = "wall_seconds"
