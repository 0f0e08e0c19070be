"""B7: many small groups in Python."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.spark.cell import Cell, Peer
from benchmarks.spark.datasets import Dataset
from benchmarks.spark.peers.grouped_python import ApplyInArrow, ApplyInPandas
from benchmarks.spark.peers.key_grouping import KeyGrouping
from benchmarks.spark.peers.shuffle_grouping import ShuffleGrouping
from benchmarks.spark.peers.skewless import Skewless
from benchmarks.spark.row import Row, Size
from benchmarks.spark.rows.emulated import paced
from benchmarks.spark.setting import CORES
from benchmarks.verdicts import Medians, Verdict, ratio


def _cells(size: Size) -> list[Cell]:
    data = Dataset(rows=size.rows(5_000_000), keys=size.keys(100_000), exponent=1.2)
    return [Cell(name="z=1.2", data=data, aggregates=paced(0.0), slots=CORES)]


def _peers(_: Cell) -> list[Peer]:
    return [
        Skewless("auto"), Skewless("staged"), ApplyInPandas(), ApplyInArrow(), KeyGrouping(), ShuffleGrouping(),
    ]  # fmt: skip


def _aims(medians: Medians, cells: Sequence[Cell]) -> list[Verdict]:
    found = []
    for cell in cells:
        faster = ratio(medians, cell.name, "applyInPandas", "skewless auto")
        found.append(Verdict("times as fast as applyInPandas", cell.name, faster, 8.0, True))
        found.append(Verdict("wall over SG", cell.name, ratio(medians, cell.name, "skewless auto", "SG"), 1.15))
    return found


B7 = Row(
    ident="B7",
    title="Many groups: what does a Python aggregate over all groups at once bring?",
    text="A sum in Python, 5 M rows, 100 k keys, Zipf z=1.2; the cost is what the processor does.",
    slots=CORES,
    cells=_cells,
    peers=_peers,
    aims=_aims,
)
