"""Spark's own grouped Python: a call per key, with all rows of the key."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from benchmarks.spark.cell import TOTAL, Cell, Place
from benchmarks.spark.peers.python_states import RESULT_SCHEMA, Call, read
from benchmarks.spark.setting import settings


@dataclass(frozen=True)
class Grouped:
    """``groupBy(key)`` and a method of that name, a partition per slot: AQE would join small ones and idle slots."""

    name: str
    total_of: Callable[[float], Callable[[Any], Any]]

    def run(self, spark: SparkSession, cell: Cell, place: Place) -> Mapping[str, float]:
        """See ``Peer``."""
        total = self.total_of(float(Call.of(cell).options.get("seconds_per_row", 0.0)))
        slots = {"spark.sql.shuffle.partitions": str(cell.slots)}
        with settings(spark, {**slots, "spark.sql.adaptive.coalescePartitions.enabled": "false"}):
            apply = getattr(read(spark, place).groupBy("key"), self.name)
            apply(total, RESULT_SCHEMA).write.parquet(str(place.output))
        return {}


def _of_frame(seconds_per_row: float) -> Callable[[pd.DataFrame], pd.DataFrame]:
    def total(rows: pd.DataFrame) -> pd.DataFrame:
        if seconds_per_row:
            time.sleep(len(rows) * seconds_per_row)
        return pd.DataFrame({"key": [rows["key"].iloc[0]], TOTAL: [rows["value"].sum()]})

    return total


def _of_table(seconds_per_row: float) -> Callable[[pa.Table], pa.Table]:
    def total(rows: pa.Table) -> pa.Table:
        if seconds_per_row:
            time.sleep(rows.num_rows * seconds_per_row)
        return pa.table({"key": rows["key"].slice(0, 1), TOTAL: [pc.sum(rows["value"]).as_py()]})

    return total


APPLY_IN_PANDAS = Grouped("applyInPandas", _of_frame)
APPLY_IN_ARROW = Grouped("applyInArrow", _of_table)
