"""What actions of ``adaptive`` are worth in real runs: each with it, and once more with it forbidden.

Nothing is known of the keys before the run. The first three workloads need an action; the last one needs none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from benchmarks.actions import ACTIONS, forbidding
from benchmarks.result_files import Figures, Verdict
from benchmarks.spark.cell import Cell, Place, Row, Size
from benchmarks.spark.datasets import Dataset
from benchmarks.spark.peers.skewless import Skewless
from benchmarks.spark.rows.slept import IDEAL_SECONDS, OURS, SLOTS, paced, rows_for

ROW_SECONDS = 0.0004
#: At least so many times as fast with an action that pays; so many times the states with those that do not.
PAYS, FOR_NOTHING = 1.1, 1.01


@dataclass(frozen=True)
class Workload:
    """Keys of an input, the routing that they get, and what is forbidden of it to compare."""

    keys: int
    exponent: float
    routing: Mapping[str, Any]
    without: tuple[str, ...]

    @property
    def peer(self) -> str:
        """How results call it without the actions."""
        return f"without {', '.join(self.without)}"


TAKEN = ("split into key buckets", "split full tasks", "change tokens", "merge key buckets")
WORKLOADS: Mapping[str, Workload] = {
    "Zipf 1.2, 4 reducers": Workload(10_000, 1.2, {"reducers": 4, "slots": SLOTS}, TAKEN[:1]),
    "60 keys alike, none named": Workload(60, 0.0, {"head_limit": 0}, ("change tokens",)),
    "Zipf 1.2, 2 to 8 reducers": Workload(
        10_000, 1.2, {"reducers": 2, "policy": {"name": "adaptive", "reducer_range": [2, SLOTS]}}, ("add reducers",)
    ),
    "Zipf 1.2, 8 reducers": Workload(10_000, 1.2, {}, TAKEN),
}


@dataclass(frozen=True)
class Without(Skewless):
    """Ours, with some actions forbidden."""

    workload: Workload = WORKLOADS["Zipf 1.2, 8 reducers"]

    @property
    def name(self) -> str:
        """See ``Peer``."""
        return self.workload.peer

    def run(self, spark: SparkSession, cell: Cell, place: Place) -> Mapping[str, float]:
        """See ``Peer``."""
        with forbidding([proposal for action in self.workload.without for proposal in ACTIONS[action]]):
            return super().run(spark, cell, place)


def _cells(size: Size) -> list[Cell]:
    rows = size.rows(rows_for(IDEAL_SECONDS, ROW_SECONDS))
    return [
        Cell(
            name=name, data=Dataset(rows=rows, keys=one.keys, exponent=one.exponent), aggregates=paced(ROW_SECONDS),
            slots=SLOTS, ideal_seconds=rows * ROW_SECONDS / SLOTS, ideal_rows=rows / SLOTS,
            routing={"first_plan": [], **one.routing},
        )
        for name, one in WORKLOADS.items()
    ]  # fmt: skip


def _judge(cell: Cell, of: Figures) -> list[Verdict]:
    one = WORKLOADS[cell.name]
    if one.without == TAKEN:
        # Loads differ by where the time of a stage has the waves cut; an action moves keys, which get further states.
        aim = "states over those without the actions"
        return [of.at_most(aim, of.ratio(OURS, one.peer, "partial_states"), FOR_NOTHING)]
    return [of.at_least(f"times as fast as {one.peer}", of.ratio(one.peer, OURS), PAYS)]


B16 = Row(
    ident="B16",
    title="Actions: what are they worth in real runs?",
    text="0.4 ms a row, W=8, T* = 15 s, nothing known before. [More of them](actions.md) are simulated.",
    slots=SLOTS,
    cells=_cells,
    peers=lambda cell: [Skewless("staged"), Without("staged", WORKLOADS[cell.name])],
    judge=_judge,
    plotted="wall_over_ideal",
)
