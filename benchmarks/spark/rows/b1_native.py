"""B1: where plain Spark is best, we cost next to nothing."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.spark.cell import Cell, Peer
from benchmarks.spark.datasets import Dataset
from benchmarks.spark.peers.builtin import Builtin
from benchmarks.spark.peers.skewless import Skewless
from benchmarks.spark.row import Row, Size
from benchmarks.spark.setting import CORES
from benchmarks.verdicts import Medians, Verdict, ratio


def _cells(size: Size) -> list[Cell]:
    return [
        Cell(
            name="z=1.6",
            data=Dataset(rows=size.rows(20_000_000), keys=100_000, exponent=1.6),
            aggregates={"n": {"function": "count"}, "total": {"function": "sum", "column": "value"}},
            slots=CORES,
        )
    ]


def _peers(_: Cell) -> list[Peer]:
    return [Skewless("auto"), Skewless("staged"), Builtin(), Builtin(tuned=True), Builtin(bypass=True)]


def _aims(medians: Medians, cells: Sequence[Cell]) -> list[Verdict]:
    return [
        Verdict(
            f"wall of {engine} over builtin",
            cell.name,
            ratio(medians, cell.name, f"skewless {engine}", "builtin"),
            most,
        )
        for cell in cells
        for engine, most in (("auto", 1.10), ("staged", 2.0))
    ]


B1 = Row(
    ident="B1",
    title="Native: does it cost anything where plain Spark is best?",
    text="count and sum of 20 M rows, 100 k keys, Zipf z=1.6; the cost is what the processor does.",
    slots=CORES,
    cells=_cells,
    peers=_peers,
    aims=_aims,
)
