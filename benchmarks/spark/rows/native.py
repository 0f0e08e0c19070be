"""Rows whose cost is what the processor does: where plain Spark is best, large and many states, many groups."""

from __future__ import annotations

from typing import Any

from benchmarks.result_files import Figures, Verdict
from benchmarks.spark.cell import COUNT_AND_SUM, Cell, Peer, Row, Size
from benchmarks.spark.datasets import VALUES, Dataset
from benchmarks.spark.peers.builtin import Builtin
from benchmarks.spark.peers.grouped_python import APPLY_IN_ARROW, APPLY_IN_PANDAS
from benchmarks.spark.peers.grouping import KeyGrouping, ShuffleGrouping
from benchmarks.spark.peers.skewless import Skewless
from benchmarks.spark.rows.slept import paced
from benchmarks.spark.setting import CORES

SKETCHES: dict[str, dict[str, dict[str, Any]]] = {
    "HLL": {"distinct": {"function": "approx_count_distinct", "column": "value"}},
    "KLL": {"median": {"function": "approx_percentile", "column": "value", "percentage": 0.5}},
}
OURS = "skewless auto"
PEERS = ("builtin", "builtin tuned", "builtin bypass", "builtin tuned bypass")
#: The skew, and how many times the time of the best peer we may take.
SKEWS = {0.8: 1.10, 1.5: 1.05}


def _b1_cells(size: Size) -> list[Cell]:
    return [
        Cell(
            name="z=1.6",
            data=Dataset(rows=size.rows(20_000_000), keys=100_000, exponent=1.6),
            aggregates=COUNT_AND_SUM,
            slots=CORES,
        )
    ]


def _b1_judge(_: Cell, of: Figures) -> list[Verdict]:
    return [
        of.at_most(f"wall of {engine} over builtin", of.ratio(f"skewless {engine}", "builtin"), limit)
        for engine, limit in (("auto", 1.10), ("staged", 2.0))
    ]


B1 = Row(
    ident="B1",
    title="Native: does it cost anything where plain Spark is best?",
    text="count and sum of 20 M rows, 100 k keys, Zipf z=1.6; the cost is what the processor does.",
    slots=CORES,
    cells=_b1_cells,
    peers=lambda _: [Skewless("auto"), Skewless("staged"), Builtin(), Builtin(tuned=True), Builtin(bypass=True)],
    judge=_b1_judge,
)


def _b3_cells(size: Size) -> list[Cell]:
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


def _b3_peers(_: Cell) -> list[Peer]:
    plain = [Builtin(tuned=tuned, bypass=bypass, by_file=True) for bypass in (False, True) for tuned in (False, True)]
    return [Skewless("auto"), Skewless("bypass"), Skewless("staged"), *plain]


def _b3_judge(cell: Cell, of: Figures) -> list[Verdict]:
    walls = {peer: wall for peer in PEERS if (wall := of.value(peer, "wall_seconds")) is not None}
    best = min(walls, key=lambda peer: walls[peer], default=PEERS[0])
    found = [of.at_most(f"wall over the best peer, {best}", of.ratio(OURS, best), SKEWS[cell.data.exponent])]
    if cell.data.exponent > 1:
        fewer = of.ratio("builtin bypass", OURS, "largest_task_rows")
        found.append(of.at_least("times fewer rows in the largest task than bypass", fewer, 1.3))
    return [*found, of.at_most("bytes of states over builtin's", of.ratio(OURS, "builtin", "state_bytes"), 0.3)]


B3 = Row(
    ident="B3",
    title="Big state: what does one state per key, not one per key and split, bring?",
    text="5 M rows, 1 M keys, Zipf z=0.8 and z=1.5 (a hot key), 32 input splits; the cost is what the processor does."
    " Bytes of states: ours the committed files, plain Spark's its one exchange.",
    slots=CORES,
    cells=_b3_cells,
    peers=_b3_peers,
    judge=_b3_judge,
)


def _b7_cells(size: Size) -> list[Cell]:
    data = Dataset(rows=size.rows(5_000_000), keys=size.keys(100_000), exponent=1.2)
    return [Cell(name="z=1.2", data=data, aggregates=paced(0.0), slots=CORES)]


def _b7_judge(_: Cell, of: Figures) -> list[Verdict]:
    return [
        of.at_least("times as fast as applyInPandas", of.ratio("applyInPandas", OURS), 8.0),
        of.at_most("wall over SG", of.ratio(OURS, "SG"), 1.15),
    ]


B7 = Row(
    ident="B7",
    title="Many groups: what does a Python aggregate over all groups at once bring?",
    text="A sum in Python, 5 M rows, 100 k keys, Zipf z=1.2; the cost is what the processor does.",
    slots=CORES,
    cells=_b7_cells,
    peers=lambda _: [
        Skewless("auto"),
        Skewless("staged"),
        APPLY_IN_PANDAS,
        APPLY_IN_ARROW,
        KeyGrouping(),
        ShuffleGrouping(),
    ],
    judge=_b7_judge,
)
