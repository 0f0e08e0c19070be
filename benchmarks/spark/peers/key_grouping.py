"""KG: every row goes to the task that the hash of its key names, for ever."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import SparkSession

from benchmarks.spark.cell import Cell, Place
from benchmarks.spark.peers.python_states import RESULT_SCHEMA, Call, read, whole


@dataclass(frozen=True)
class KeyGrouping:
    """Raw rows hash-partitioned by key, then the Python aggregate in ``mapInArrow``."""

    name: str = "KG"

    def run(self, spark: SparkSession, cell: Cell, place: Place) -> Mapping[str, float]:
        """See ``Peer``."""
        rows = read(spark, place).repartition(cell.slots, "key")
        rows.mapInArrow(whole(Call.of(cell)), RESULT_SCHEMA).write.parquet(str(place.output))
        return {}
