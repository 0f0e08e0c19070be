"""B2: rows that take their time, on keys that are badly skewed."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.spark.cell import Cell, Peer
from benchmarks.spark.datasets import Dataset
from benchmarks.spark.engines import KNOWN
from benchmarks.spark.peers.grouped_python import ApplyInPandas
from benchmarks.spark.peers.key_grouping import KeyGrouping
from benchmarks.spark.peers.partial_key_grouping import PartialKeyGrouping
from benchmarks.spark.peers.salting import Salting
from benchmarks.spark.peers.shuffle_grouping import ShuffleGrouping
from benchmarks.spark.peers.skewless import Skewless
from benchmarks.spark.row import Row, Size
from benchmarks.spark.rows.emulated import SLOTS, paced, rows_for
from benchmarks.verdicts import Medians, Verdict, ratio, value

SECONDS_PER_ROW = 0.0004
#: How many times faster than KG and applyInPandas, and than PKG, by exponent.
THAN_KG = {1.2: 1.9, 1.6: 2.7, 2.0: 3.7}
THAN_PKG = {1.6: 1.4, 2.0: 2.0}
OURS = "skewless staged"


def _cells(size: Size) -> list[Cell]:
    ideal = (60.0 if size.long else 15.0) * size.scale
    rows = size.rows(rows_for(ideal / size.scale, SECONDS_PER_ROW))
    return [
        Cell(
            name=f"z={exponent}",
            data=Dataset(rows=rows, keys=10_000, exponent=exponent),
            aggregates=paced(SECONDS_PER_ROW),
            slots=SLOTS,
            ideal_seconds=rows * SECONDS_PER_ROW / SLOTS,
            ideal_rows=rows / SLOTS,
        )
        for exponent in ((1.6,) if size.long else THAN_KG)
    ]


def _peers(_: Cell) -> list[Peer]:
    ours: list[Peer] = [Skewless("staged")]
    if "auto" in KNOWN:
        ours.append(Skewless("auto"))
    return [*ours, KeyGrouping(), ApplyInPandas(), PartialKeyGrouping(), Salting(), ShuffleGrouping()]


def _aims(medians: Medians, cells: Sequence[Cell]) -> list[Verdict]:
    found = []
    for cell in cells:
        name, exponent = cell.name, cell.data.exponent
        found += [
            Verdict("largest loads over T*", name, value(medians, name, OURS, "load_over_ideal"), 1.05),
            Verdict("wall over T*", name, value(medians, name, OURS, "wall_over_ideal"), 1.20),
        ]
        for peer, limits in (("KG", THAN_KG), ("applyInPandas", THAN_KG), ("PKG", THAN_PKG)):
            if exponent in limits:
                limit = limits[exponent]
                faster = ratio(medians, name, peer, OURS)
                found.append(Verdict(f"times as fast as {peer}", name, faster, limit, at_least=True))
        found += [
            Verdict("states over those of SG", name, ratio(medians, name, OURS, "SG", "partial_states"), 0.5),
            Verdict("auto: wall over SG", name, ratio(medians, name, "skewless auto", "SG"), 1.05),
        ]
    return found


B2 = Row(
    ident="B2",
    title="Delay: how near to T*, where each row takes its time?",
    text="10 k keys, 0.4 ms a row, W=8, T* = 15 s (60 s and the exponent 1.6 with --long). SG takes one pass, near"
    " to T* whatever the keys.",
    slots=SLOTS,
    cells=_cells,
    peers=_peers,
    aims=_aims,
    plotted="wall_over_ideal",
)
