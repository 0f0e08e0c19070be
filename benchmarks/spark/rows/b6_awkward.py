"""B6: rows, slots, files and aggregates that are not alike."""

from __future__ import annotations

import numpy as np

from benchmarks.result_files import Figures, Verdict
from benchmarks.spark.cell import TOTAL, Cell, Peer, Row, Size
from benchmarks.spark.datasets import Dataset, drawn_keys, drawn_values
from benchmarks.spark.peers.grouping import KeyGrouping, ShuffleGrouping
from benchmarks.spark.peers.skewless import Skewless
from benchmarks.spark.rows.slept import SLOTS, paced, rows_for

SECONDS_PER_ROW = 0.0004
IDEAL_SECONDS = 10.0
KEYS = 10_000
#: The slow slot takes so many times as long.
SLOWDOWN = 3.0
#: Who knows that rows are not alike says so; from the second night on they are measured anyway.
MEASURED = {"first_plan": ["sample", "probe"]}
COST, SLOW, FILE, WHOLE = "a: cost by key", "b: a slow slot", "c: half in one file", "d: not mergeable"
OURS = "skewless staged"


def _cells(size: Size) -> list[Cell]:
    rows = size.rows(rows_for(IDEAL_SECONDS, SECONDS_PER_ROW))
    plain = Dataset(rows=rows, keys=KEYS, exponent=1.2)
    ideal = rows * SECONDS_PER_ROW / SLOTS
    whole = _ideal_of_whole(plain)
    return [
        _by_cost(rows),
        Cell(
            name=SLOW,
            data=plain,
            aggregates=paced(SECONDS_PER_ROW, slots=SLOTS, slow_slot=SLOTS - 1, slowdown=SLOWDOWN, tally=""),
            slots=SLOTS,
            ideal_seconds=rows * SECONDS_PER_ROW / (SLOTS - 1 + 1 / SLOWDOWN),
            routing=MEASURED,
        ),
        Cell(
            name=FILE,
            data=Dataset(rows=rows // 2, keys=KEYS, exponent=1.2, first_file_share=0.5),
            aggregates=paced(SECONDS_PER_ROW),
            slots=SLOTS,
            ideal_seconds=ideal / 2,
            ideal_rows=rows // 2 / SLOTS,
        ),
        Cell(
            name=WHOLE,
            data=plain,
            aggregates=paced(SECONDS_PER_ROW, "paced_sum_unmergeable"),
            slots=SLOTS,
            ideal_seconds=whole * SECONDS_PER_ROW,
            ideal_rows=whole,
        ),
    ]


def _by_cost(rows: int) -> Cell:
    data = Dataset(rows=rows, keys=KEYS, exponent=1.2, values="cost")
    units = float(drawn_values(data, drawn_keys(data)).sum())
    per_unit = IDEAL_SECONDS * SLOTS * rows / rows_for(IDEAL_SECONDS, SECONDS_PER_ROW) / units
    aggregates = {TOTAL: {"function": "paced_sum", "column": "value", "seconds_per_unit": per_unit}}
    return Cell(
        name=COST, data=data, aggregates=aggregates, slots=SLOTS, ideal_seconds=units * per_unit / SLOTS,
        routing=MEASURED,
    )  # fmt: skip


def _ideal_of_whole(data: Dataset) -> float:
    """Rows of the largest task where no key may be split: the heaviest key's, or the fair share."""
    return float(max(np.bincount(drawn_keys(data)).max(), data.rows / SLOTS))


def _peers(cell: Cell) -> list[Peer]:
    shuffled = {FILE: [ShuffleGrouping(even=False)], WHOLE: []}.get(cell.name, [ShuffleGrouping()])
    return [Skewless("staged"), KeyGrouping(), *shuffled]


def _judge(cell: Cell, of: Figures) -> list[Verdict]:
    if cell.name == FILE:
        return [of.at_least("times as fast as SG by file", of.ratio("SG", OURS), 3.0)]
    over_ideal = of.value(OURS, "wall_over_ideal")
    if cell.name != WHOLE:
        return [of.at_most("wall over the ideal", over_ideal, 1.15)]
    owners = of.at_most("tasks that a key is in, in a stage", of.value(OURS, "owners_of_a_key"), 1.0)
    return [owners, of.at_most("wall over the ideal", over_ideal, 1.05)]


B6 = Row(
    ident="B6",
    title="Awkward: rows, slots, files and aggregates that are not alike",
    text="10 k keys, Zipf z=1.2, W=8. (a) the cost of a row is log-normal by key, T* = 10 s; (b) one slot takes three"
    " times as long for any task that runs on it, ideal: seven slots and a third; (c) half of the rows in one file,"
    " T* = 5 s, SG's map is by file; (d) the aggregate is not mergeable, ideal: max(p1, 1/W) of the total.",
    slots=SLOTS,
    cells=_cells,
    peers=_peers,
    judge=_judge,
    plotted="wall_over_ideal",
)
