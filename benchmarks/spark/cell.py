"""A row of the benchmarks: its cells, each an input with what to compute of it, its peers, its aims."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

from pyspark.sql import SparkSession

from benchmarks.result_files import Figures, Medians, Verdict
from benchmarks.spark.datasets import Dataset

#: The name of the aggregate in a result of one aggregate.
TOTAL = "total"
#: The cheapest aggregates there are.
COUNT_AND_SUM: Mapping[str, Mapping[str, Any]] = {
    "n": {"function": "count"},
    TOTAL: {"function": "sum", "column": "value"},
}


@dataclass(frozen=True)
class Cell:
    """One input and what all peers compute of it: per ``key`` the aggregates.

    Attributes:
        name: what tells it from the other cells of its row.
        data: the input.
        aggregates: as in a spec; column by column what the result holds beside the key.
        slots: tasks side by side, W.
        ideal_seconds: T*, of the emulated cost alone; null where the cost is what the processor does.
        ideal_rows: the rows of each slot at T*, where all rows and slots are alike; else null.
        tolerances: how far a result column may differ between peers, relative to ``spans``; exact where none.
        spans: the span of the values of a column with a tolerance; null where it is relative to the value itself.
        routing: fields of the spec's routing beside those that every run has.
        hot_epoch: whether salting by hand knows only the keys that are hot in the first epoch; else it salts all.
    """

    name: str
    data: Dataset
    aggregates: Mapping[str, Mapping[str, Any]]
    slots: int
    ideal_seconds: float | None = None
    ideal_rows: float | None = None
    tolerances: Mapping[str, float] = field(default_factory=dict)
    spans: Mapping[str, float | None] = field(default_factory=dict)
    routing: Mapping[str, Any] = field(default_factory=dict)
    hot_epoch: bool = False

    @property
    def call(self) -> Mapping[str, Any]:
        """The Python aggregate of a cell that has only that."""
        return self.aggregates[TOTAL]

    def with_tally(self, folder: str) -> Cell:
        """The same, its set-ups counted in a folder."""
        counted = {
            name: {**call, "tally": folder} if "tally" in call else call for name, call in self.aggregates.items()
        }
        return replace(self, aggregates=counted)


class Place(NamedTuple):
    """Where a peer reads and writes, in one repetition.

    Attributes:
        input: the folder of the input.
        output: a folder that does not exist yet, for the result as Parquet.
        scratch: an empty folder.
    """

    input: Path
    output: Path
    scratch: Path


class Peer(Protocol):
    """Somebody who can compute a cell."""

    @property
    def name(self) -> str:
        """How results call it."""

    def run(self, spark: SparkSession, cell: Cell, place: Place) -> Mapping[str, float]:
        """Compute the cell and write the result, the columns ``key`` and those of the cell.

        Returns:
            Figures that only the peer knows, among them ``wall_seconds`` if less than all of this is timed.
        """


@runtime_checkable
class Settling(Protocol):
    """A peer that has something to do before it is timed."""

    def settle(self, spark: SparkSession, cell: Cell, place: Place) -> None:
        """Do it; called before each run."""


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
        judge: the aims of a cell, by its figures.
        plotted: the figure that its plot shows.
    """

    ident: str
    title: str
    text: str
    slots: int
    cells: Callable[[Size], Sequence[Cell]]
    peers: Callable[[Cell], Sequence[Peer]]
    judge: Callable[[Cell, Figures], Sequence[Verdict]]
    plotted: str = "wall_seconds"

    def aims(self, medians: Medians, cells: Sequence[Cell]) -> list[Verdict]:
        """The aims of all cells, judged on medians."""
        return [verdict for cell in cells for verdict in self.judge(cell, Figures(cell.name, medians))]
