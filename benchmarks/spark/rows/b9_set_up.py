"""B9: a key that must be set up in every task that sees it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from benchmarks.spark.cell import Cell, Peer
from benchmarks.spark.datasets import Dataset, drawn_keys
from benchmarks.spark.peers.key_grouping import KeyGrouping
from benchmarks.spark.peers.shuffle_grouping import ShuffleGrouping
from benchmarks.spark.peers.skewless import Skewless
from benchmarks.spark.row import Row, Size
from benchmarks.spark.rows.emulated import SLOTS, paced
from benchmarks.verdicts import Medians, Verdict, ratio, value

SECONDS_PER_ROW = 0.00005
SECONDS_PER_KEY = 0.005
ROWS, KEYS = 3_000_000, 20_000


def _cells(size: Size) -> list[Cell]:
    data = Dataset(rows=size.rows(ROWS), keys=size.keys(KEYS), exponent=1.2)
    seen = len(np.unique(drawn_keys(data)))
    return [
        Cell(
            name="z=1.2",
            data=data,
            aggregates=paced(SECONDS_PER_ROW, "paced_model_sum", seconds_per_key=SECONDS_PER_KEY, tally=""),
            slots=SLOTS,
            ideal_seconds=(data.rows * SECONDS_PER_ROW + seen * SECONDS_PER_KEY) / SLOTS,
        )
    ]


def _peers(_: Cell) -> list[Peer]:
    return [Skewless("auto"), KeyGrouping(), ShuffleGrouping()]


def _aims(medians: Medians, cells: Sequence[Cell]) -> list[Verdict]:
    found = []
    for cell in cells:
        name, ours = cell.name, "skewless auto"
        set_ups = value(medians, name, ours, "set_ups_per_key")
        found += [
            Verdict("times as fast as SG", name, ratio(medians, name, "SG", ours), 3.0, at_least=True),
            Verdict("times as fast as KG", name, ratio(medians, name, "KG", ours), 1.5, at_least=True),
            Verdict("set-ups per key", name, set_ups, 1.1),
            Verdict("set-ups per key: every key was set up", name, set_ups, 1.0, at_least=True),
        ]
    return found


B9 = Row(
    ident="B9",
    title="Set-up by key: what if a key's model must be loaded?",
    text="3 M rows, 20 k keys, Zipf z=1.2, 5 ms to set up a key in a task, 0.05 ms a row, W=8. Set-ups are counted by"
    " the aggregate itself. The peers' second phase sets nothing up.",
    slots=SLOTS,
    cells=_cells,
    peers=_peers,
    aims=_aims,
    plotted="wall_over_ideal",
)
