"""B3: states that are large and many."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.spark.cell import Cell, Peer
from benchmarks.spark.datasets import VALUES, Dataset
from benchmarks.spark.peers.builtin import Builtin
from benchmarks.spark.peers.skewless import Skewless
from benchmarks.spark.row import Row, Size
from benchmarks.spark.setting import CORES
from benchmarks.verdicts import Medians, Verdict, ratio, value

SKETCHES: dict[str, dict[str, dict[str, Any]]] = {
    "HLL": {"distinct": {"function": "approx_count_distinct", "column": "value"}},
    "KLL": {"median": {"function": "approx_percentile", "column": "value", "percentage": 0.5}},
}
OURS = "skewless auto"
PEERS = ("builtin", "builtin tuned", "builtin bypass", "builtin tuned bypass")
#: The skew, and how many times the time of the best peer we may take.
SKEWS = {0.8: 1.10, 1.5: 1.05}


def _cells(size: Size) -> list[Cell]:
    rows, keys = size.rows(5_000_000), size.keys(1_000_000)
    return [
        Cell(
            name=f"{sketch} z={exponent:g}",
            data=Dataset(rows=rows, keys=keys, exponent=exponent, files=32),
            aggregates=aggregates,
            slots=CORES,
            # Five standard deviations of a distinct count; ranks are off by 1.33 % at most, in each of the two.
            tolerances={"distinct": 0.10, "median": 0.06},
            spans={"median": float(VALUES)},
        )
        for sketch, aggregates in SKETCHES.items()
        for exponent in SKEWS
    ]


def _peers(_: Cell) -> list[Peer]:
    plain: list[Peer] = [
        Builtin(tuned=tuned, bypass=bypass, by_file=True) for bypass in (False, True) for tuned in (False, True)
    ]
    return [Skewless("auto"), Skewless("bypass"), Skewless("staged"), *plain]


def _aims(medians: Medians, cells: Sequence[Cell]) -> list[Verdict]:
    found = []
    for cell in cells:
        name = cell.name
        walls = {peer: value(medians, name, peer, "wall_seconds") for peer in PEERS}
        measured = {peer: wall for peer, wall in walls.items() if wall is not None}
        best = min(measured, key=lambda peer: measured[peer], default=PEERS[0])
        most = SKEWS[cell.data.exponent]
        found.append(Verdict(f"wall over the best peer, {best}", name, ratio(medians, name, OURS, best), most))
        if cell.data.exponent > 1:
            fewer = ratio(medians, name, "builtin bypass", OURS, "largest_task_rows")
            found.append(Verdict("times fewer rows in the largest task than bypass", name, fewer, 1.3, True))
        states = ratio(medians, name, OURS, "builtin", "state_bytes")
        found.append(Verdict("bytes of states over builtin's", name, states, 0.3))
    return found


B3 = Row(
    ident="B3",
    title="Big state: what does one state per key, not one per key and split, bring?",
    text="5 M rows, 1 M keys, Zipf z=0.8 and z=1.5 (a hot key), 32 input splits; the cost is what the processor does."
    " Bytes of states: ours the committed files, plain Spark's its one exchange.",
    slots=CORES,
    cells=_cells,
    peers=_peers,
    aims=_aims,
)
