"""Spark's own grouped Python: a call per key, with all rows of the key."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from benchmarks.spark.cell import TOTAL, Cell, Place
from benchmarks.spark.peers.python_states import RESULT_SCHEMA, Call, read
from benchmarks.spark.setting import settings


@dataclass(frozen=True)
class ApplyInPandas:
    """``groupBy(key).applyInPandas``, a partition per slot: AQE would join small ones and idle slots."""

    name: str = "applyInPandas"

    def run(self, spark: SparkSession, cell: Cell, place: Place) -> Mapping[str, float]:
        """See ``Peer``."""
        with settings(spark, _partitions(cell)):
            groups = read(spark, place).groupBy("key")
            groups.applyInPandas(_of_frame(_seconds_per_row(cell)), RESULT_SCHEMA).write.parquet(str(place.output))
        return {}


@dataclass(frozen=True)
class ApplyInArrow:
    """``groupBy(key).applyInArrow``, a partition per slot."""

    name: str = "applyInArrow"

    def run(self, spark: SparkSession, cell: Cell, place: Place) -> Mapping[str, float]:
        """See ``Peer``."""
        with settings(spark, _partitions(cell)):
            groups = read(spark, place).groupBy("key")
            groups.applyInArrow(_of_table(_seconds_per_row(cell)), RESULT_SCHEMA).write.parquet(str(place.output))
        return {}


def _partitions(cell: Cell) -> dict[str, str]:
    return {"spark.sql.shuffle.partitions": str(cell.slots), "spark.sql.adaptive.coalescePartitions.enabled": "false"}


def _seconds_per_row(cell: Cell) -> float:
    return float(Call.of(cell).options.get("seconds_per_row", 0.0))


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
