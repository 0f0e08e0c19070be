"""Rows whose cost is slept: rows that take so long, on slots of which the machine need not have as many."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.result_files import Figures, Verdict
from benchmarks.spark.cell import TOTAL, Cell, Row, Size
from benchmarks.spark.datasets import Dataset, drawn_keys
from benchmarks.spark.peers.grouped_python import APPLY_IN_PANDAS
from benchmarks.spark.peers.grouping import KeyGrouping, PartialKeyGrouping, Salting, ShuffleGrouping
from benchmarks.spark.peers.skewless import Skewless

#: Slots, W: tasks side by side.
SLOTS = 8
B2_ROW_SECONDS, B4_ROW_SECONDS, B5_ROW_SECONDS, B9_ROW_SECONDS = 0.0004, 0.0002, 0.0004, 0.00005
SECONDS_PER_KEY = 0.005
#: T* of B4 and B5.
IDEAL_SECONDS = 15.0
#: How many times faster than KG and applyInPandas, and than PKG, by exponent.
THAN_KG = {1.2: 1.9, 1.6: 2.7, 2.0: 3.7}
THAN_PKG = {1.6: 1.4, 2.0: 2.0}
OURS, AUTO = "skewless staged", "skewless auto"


def rows_for(ideal_seconds: float, seconds_per_row: float) -> int:
    """How many rows keep all slots busy for so long."""
    return round(ideal_seconds * SLOTS / seconds_per_row)


def paced(seconds_per_row: float, function: str = "paced_sum", **options: Any) -> dict[str, dict[str, Any]]:
    """The sum that takes so long per row."""
    return {TOTAL: {"function": function, "column": "value", "seconds_per_row": seconds_per_row, **options}}


def _even_cell(name: str, data: Dataset, seconds_per_row: float, *, hot_epoch: bool = False) -> Cell:
    """A cell whose rows and slots are all alike."""
    return Cell(
        name=name, data=data, aggregates=paced(seconds_per_row), slots=SLOTS,
        ideal_seconds=data.rows * seconds_per_row / SLOTS, ideal_rows=data.rows / SLOTS, hot_epoch=hot_epoch,
    )  # fmt: skip


def _b2_cells(size: Size) -> list[Cell]:
    rows = size.rows(rows_for(60.0 if size.long else 15.0, B2_ROW_SECONDS))
    return [
        _even_cell(f"z={exponent}", Dataset(rows=rows, keys=10_000, exponent=exponent), B2_ROW_SECONDS)
        for exponent in ((1.6,) if size.long else THAN_KG)
    ]


def _b2_judge(cell: Cell, of: Figures) -> list[Verdict]:
    exponent = cell.data.exponent
    faster = [
        of.at_least(f"times as fast as {peer}", of.ratio(peer, OURS), limits[exponent])
        for peer, limits in (("KG", THAN_KG), ("applyInPandas", THAN_KG), ("PKG", THAN_PKG))
        if exponent in limits
    ]
    return [
        of.at_most("largest loads over T*", of.value(OURS, "load_over_ideal"), 1.05),
        of.at_most("wall over T*", of.value(OURS, "wall_over_ideal"), 1.20),
        *faster,
        of.at_most("states over those of SG", of.ratio(OURS, "SG", "partial_states"), 0.5),
        of.at_most("auto: wall over SG", of.ratio(AUTO, "SG"), 1.05),
    ]


B2 = Row(
    ident="B2",
    title="Delay: how near to T*, where each row takes its time?",
    text="10 k keys, 0.4 ms a row, W=8, T* = 15 s (60 s and the exponent 1.6 with --long). SG takes one pass, near"
    " to T* whatever the keys.",
    slots=SLOTS,
    cells=_b2_cells,
    peers=lambda _: [
        Skewless("staged"),
        Skewless("auto"),
        KeyGrouping(),
        APPLY_IN_PANDAS,
        PartialKeyGrouping(),
        Salting(),
        ShuffleGrouping(),
    ],
    judge=_b2_judge,
    plotted="wall_over_ideal",
)


def _b4_cells(size: Size) -> list[Cell]:
    rows = size.rows(rows_for(IDEAL_SECONDS, B4_ROW_SECONDS))
    data = Dataset(rows=rows, keys=10_000, exponent=1.4, epochs=10)
    return [_even_cell("z=1.4, 10 epochs", data, B4_ROW_SECONDS, hot_epoch=True)]


def _b4_judge(_: Cell, of: Figures) -> list[Verdict]:
    return [
        of.at_most("wall over T*", of.value(OURS, "wall_over_ideal"), 1.25),
        of.at_least("times as fast as salting", of.ratio("salting", OURS), 1.5),
        of.at_most("share of the rows forwarded", of.value(OURS, "forwarded_share"), 0.10),
    ]


B4 = Row(
    ident="B4",
    title="Drift: what if other keys get hot?",
    text="10 k keys, Zipf z=1.4, hot keys permuted ten times over the input, 0.2 ms a row, W=8, T* = 15 s. Salting"
    " knows the keys that are hot in the first epoch, and salts those.",
    slots=SLOTS,
    cells=_b4_cells,
    peers=lambda _: [Skewless("staged"), Salting(), KeyGrouping(), PartialKeyGrouping(), ShuffleGrouping()],
    judge=_b4_judge,
    plotted="wall_over_ideal",
)


def _b5_cells(size: Size) -> list[Cell]:
    rows = size.rows(rows_for(IDEAL_SECONDS, B5_ROW_SECONDS))
    return [_even_cell("uniform", Dataset(rows=rows, keys=10_000, exponent=0.0), B5_ROW_SECONDS)]


def _b5_judge(_: Cell, of: Figures) -> list[Verdict]:
    return [
        of.at_most("wall over KG", of.ratio(OURS, "KG"), 1.05),
        of.at_most("rows forwarded", of.value(OURS, "rows_forwarded"), 0.0),
    ]


B5 = Row(
    ident="B5",
    title="No skew: what does it cost where there is nothing to balance?",
    text="10 k keys, uniform, 0.4 ms a row, W=8, T* = 15 s.",
    slots=SLOTS,
    cells=_b5_cells,
    peers=lambda _: [Skewless("staged"), KeyGrouping()],
    judge=_b5_judge,
    plotted="wall_over_ideal",
)


def _b9_cells(size: Size) -> list[Cell]:
    data = Dataset(rows=size.rows(3_000_000), keys=size.keys(20_000), exponent=1.2)
    seen = len(np.unique(drawn_keys(data)))
    return [
        Cell(
            name="z=1.2",
            data=data,
            aggregates=paced(B9_ROW_SECONDS, "paced_model_sum", seconds_per_key=SECONDS_PER_KEY, tally=""),
            slots=SLOTS,
            ideal_seconds=(data.rows * B9_ROW_SECONDS + seen * SECONDS_PER_KEY) / SLOTS,
        )
    ]


def _b9_judge(_: Cell, of: Figures) -> list[Verdict]:
    set_ups = of.value(AUTO, "set_ups_per_key")
    return [
        of.at_least("times as fast as SG", of.ratio("SG", AUTO), 3.0),
        of.at_least("times as fast as KG", of.ratio("KG", AUTO), 1.5),
        of.at_most("set-ups per key", set_ups, 1.1),
        of.at_least("set-ups per key: every key was set up", set_ups, 1.0),
    ]


B9 = Row(
    ident="B9",
    title="Set-up by key: what if a key's model must be loaded?",
    text="3 M rows, 20 k keys, Zipf z=1.2, 5 ms to set up a key in a task, 0.05 ms a row, W=8. Set-ups are counted by"
    " the aggregate itself. The peers' second phase sets nothing up.",
    slots=SLOTS,
    cells=_b9_cells,
    peers=lambda _: [Skewless("auto"), KeyGrouping(), ShuffleGrouping()],
    judge=_b9_judge,
    plotted="wall_over_ideal",
)
