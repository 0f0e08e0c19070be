"""Salting by hand: each row's key gets one of 16 salts, and the states of the salted keys are merged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.spark.cell import Cell, Place
from benchmarks.spark.datasets import files_of
from benchmarks.spark.peers.python_states import read, two_phases

SALTS = 16


@dataclass(frozen=True)
class Salting:
    """Raw rows partitioned by key and salt, states per task, merged by key."""

    name: str = "salting"

    def run(self, spark: SparkSession, cell: Cell, place: Place) -> Mapping[str, float]:
        """See ``Peer``; which keys are salted is known beforehand, and costs nothing here."""
        salt = F.pmod(F.monotonically_increasing_id(), F.lit(SALTS)).cast("int")
        if cell.hot_epoch:
            salt = F.when(F.col("key").isin(hot_keys(spark, cell, place)), salt).otherwise(0)
        rows = read(spark, place).withColumn("salt", salt)
        two_phases(rows.repartition(cell.slots, "key", "salt").select("key", "value"), cell, place)
        return {}


def hot_keys(spark: SparkSession, cell: Cell, place: Place) -> list[str]:
    """The keys that had more than a tenth of a task's fair share in the first epoch."""
    first: DataFrame = spark.read.parquet(*files_of(place.input)[: cell.data.epoch_files])
    counts = first.groupBy("key").count()
    rows = first.count()
    return [row["key"] for row in counts.where(F.col("count") > rows / cell.slots / 10).collect()]
