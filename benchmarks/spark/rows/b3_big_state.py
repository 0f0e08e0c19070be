"""B3: states that are large and many."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.spark.aims import Medians, Verdict, ratio
from benchmarks.spark.cell import Cell, Peer
from benchmarks.spark.datasets import VALUES, Dataset
from benchmarks.spark.peers.builtin import Builtin
from benchmarks.spark.peers.skewless import Skewless
from benchmarks.spark.row import Row, Size
from benchmarks.spark.setting import CORES

SKETCHES: dict[str, dict[str, dict[str, Any]]] = {
    "HLL": {"distinct": {"function": "approx_count_distinct", "column": "value"}},
    "KLL": {"median": {"function": "approx_percentile", "column": "value", "percentage": 0.5}},
}
OURS = "skewless staged"


def _cells(size: Size) -> list[Cell]:
    data = Dataset(rows=size.rows(5_000_000), keys=size.keys(1_000_000), exponent=0.8, files=32)
    return [
        Cell(
            name=sketch,
            data=data,
            aggregates=aggregates,
            slots=CORES,
            # Five standard deviations of a distinct count; ranks are off by 1.33 % at most, in each of the two.
            tolerances={"distinct": 0.10, "median": 0.06},
            spans={"median": float(VALUES)},
        )
        for sketch, aggregates in SKETCHES.items()
    ]


def _peers(_: Cell) -> list[Peer]:
    return [Skewless("staged"), Skewless("auto"), Builtin(by_file=True), Builtin(tuned=True, by_file=True)]


def _aims(medians: Medians, cells: Sequence[Cell]) -> list[Verdict]:
    found = []
    for cell in cells:
        name = cell.name
        for peer, limit in (("builtin", 2.0), ("builtin tuned", 1.7)):
            found.append(Verdict(f"times as fast as {peer}", name, ratio(medians, name, peer, OURS), limit, True))
        states = ratio(medians, name, OURS, "builtin", "state_bytes")
        found.append(Verdict("bytes of states over builtin's", name, states, 0.3))
    return found


B3 = Row(
    ident="B3",
    title="Big state: what does one state per key, not one per key and split, bring?",
    text="5 M rows, 1 M keys, Zipf z=0.8, 32 input splits; the cost is what the processor does. Bytes of states: ours"
    " the committed files, plain Spark's its one exchange.",
    slots=CORES,
    cells=_cells,
    peers=_peers,
    aims=_aims,
)
