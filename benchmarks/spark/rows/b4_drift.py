"""B4: what is hot changes while the input is read."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.spark.cell import Cell, Peer
from benchmarks.spark.datasets import Dataset
from benchmarks.spark.peers.key_grouping import KeyGrouping
from benchmarks.spark.peers.partial_key_grouping import PartialKeyGrouping
from benchmarks.spark.peers.salting import Salting
from benchmarks.spark.peers.shuffle_grouping import ShuffleGrouping
from benchmarks.spark.peers.skewless import Skewless
from benchmarks.spark.row import Row, Size
from benchmarks.spark.rows.emulated import SLOTS, paced, rows_for
from benchmarks.verdicts import Medians, Verdict, ratio, value

SECONDS_PER_ROW = 0.0002
IDEAL_SECONDS = 15.0
OURS = "skewless staged"


def _cells(size: Size) -> list[Cell]:
    rows = size.rows(rows_for(IDEAL_SECONDS, SECONDS_PER_ROW))
    return [
        Cell(
            name="z=1.4, 10 epochs",
            data=Dataset(rows=rows, keys=10_000, exponent=1.4, epochs=10),
            aggregates=paced(SECONDS_PER_ROW),
            slots=SLOTS,
            ideal_seconds=rows * SECONDS_PER_ROW / SLOTS,
            ideal_rows=rows / SLOTS,
            hot_epoch=True,
        )
    ]


def _peers(_: Cell) -> list[Peer]:
    return [Skewless("staged"), Salting(), KeyGrouping(), PartialKeyGrouping(), ShuffleGrouping()]


def _aims(medians: Medians, cells: Sequence[Cell]) -> list[Verdict]:
    found = []
    for cell in cells:
        name = cell.name
        found += [
            Verdict("wall over T*", name, value(medians, name, OURS, "wall_over_ideal"), 1.25),
            Verdict("times as fast as salting", name, ratio(medians, name, "salting", OURS), 1.5, at_least=True),
            Verdict("share of the rows forwarded", name, value(medians, name, OURS, "forwarded_share"), 0.10),
        ]
    return found


B4 = Row(
    ident="B4",
    title="Drift: what if other keys get hot?",
    text="10 k keys, Zipf z=1.4, hot keys permuted ten times over the input, 0.2 ms a row, W=8, T* = 15 s. Salting"
    " knows the keys that are hot in the first epoch, and salts those.",
    slots=SLOTS,
    cells=_cells,
    peers=_peers,
    aims=_aims,
    plotted="wall_over_ideal",
)
