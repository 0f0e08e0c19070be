"""B5: nothing to balance."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.spark.cell import Cell, Peer
from benchmarks.spark.datasets import Dataset
from benchmarks.spark.peers.key_grouping import KeyGrouping
from benchmarks.spark.peers.skewless import Skewless
from benchmarks.spark.row import Row, Size
from benchmarks.spark.rows.emulated import SLOTS, paced, rows_for
from benchmarks.verdicts import Medians, Verdict, ratio, value

SECONDS_PER_ROW = 0.0004
IDEAL_SECONDS = 15.0


def _cells(size: Size) -> list[Cell]:
    rows = size.rows(rows_for(IDEAL_SECONDS, SECONDS_PER_ROW))
    return [
        Cell(
            name="uniform",
            data=Dataset(rows=rows, keys=10_000, exponent=0.0),
            aggregates=paced(SECONDS_PER_ROW),
            slots=SLOTS,
            ideal_seconds=rows * SECONDS_PER_ROW / SLOTS,
            ideal_rows=rows / SLOTS,
        )
    ]


def _peers(_: Cell) -> list[Peer]:
    return [Skewless("staged"), KeyGrouping()]


def _aims(medians: Medians, cells: Sequence[Cell]) -> list[Verdict]:
    found = []
    for cell in cells:
        name = cell.name
        found += [
            Verdict("wall over KG", name, ratio(medians, name, "skewless staged", "KG"), 1.05),
            Verdict("rows forwarded", name, value(medians, name, "skewless staged", "rows_forwarded"), 0.0),
        ]
    return found


B5 = Row(
    ident="B5",
    title="No skew: what does it cost where there is nothing to balance?",
    text="10 k keys, uniform, 0.4 ms a row, W=8, T* = 15 s.",
    slots=SLOTS,
    cells=_cells,
    peers=_peers,
    aims=_aims,
    plotted="wall_over_ideal",
)
