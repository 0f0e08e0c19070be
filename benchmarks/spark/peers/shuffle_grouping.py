"""SG: rows are aggregated wherever they happen to be read, and the states are merged by key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import SparkSession

from benchmarks.spark.cell import Cell, Place
from benchmarks.spark.peers.python_states import read, two_phases
from benchmarks.spark.setting import BY_FILE, settings


@dataclass(frozen=True)
class ShuffleGrouping:
    """``mapInArrow`` in two phases.

    Attributes:
        even: whether the files are dealt out evenly, as many to each slot; else a file is a task.
    """

    even: bool = True
    name: str = "SG"

    def run(self, spark: SparkSession, cell: Cell, place: Place) -> Mapping[str, float]:
        """See ``Peer``."""
        with settings(spark, BY_FILE):
            rows = read(spark, place)
            two_phases(rows.coalesce(cell.slots) if self.even else rows, cell, place)
        return {}
