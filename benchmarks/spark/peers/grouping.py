"""Ways to send rows to tasks, each with the Python aggregate in one phase or in two."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.spark.cell import Cell, Place
from benchmarks.spark.datasets import files_of
from benchmarks.spark.peers.python_states import RESULT_SCHEMA, Batches, Call, Mapper, read, two_phases, whole
from benchmarks.spark.setting import BY_FILE, settings
from skewless.routing.hashing import key_hash

SALTS = 16


@dataclass(frozen=True)
class KeyGrouping:
    """KG: every row goes to the task that the hash of its key names, then the Python aggregate in ``mapInArrow``."""

    name: str = "KG"

    def run(self, spark: SparkSession, cell: Cell, place: Place) -> Mapping[str, float]:
        """See ``Peer``."""
        rows = read(spark, place).repartition(cell.slots, "key")
        rows.mapInArrow(whole(Call.of(cell)), RESULT_SCHEMA).write.parquet(str(place.output))
        return {}


@dataclass(frozen=True)
class ShuffleGrouping:
    """SG: rows are aggregated wherever they happen to be read, and the states are merged by key.

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


@dataclass(frozen=True)
class Salting:
    """Salting by hand: each row's key gets one of 16 salts, and the states of the salted keys are merged."""

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


@dataclass(frozen=True)
class PartialKeyGrouping:
    """PKG: every row goes to the less loaded of two tasks, by what its own source has sent so far.

    M. A. U. Nasir et al., "The Power of Both Choices", ICDE 2015: two hashes of the key, local load estimation. The two
    candidates are distinct, as in our other measurements of it.
    """

    name: str = "PKG"

    def run(self, spark: SparkSession, cell: Cell, place: Place) -> Mapping[str, float]:
        """See ``Peer``."""
        chosen = read(spark, place).mapInArrow(choose(cell.slots), "key string, value bigint, task int")
        rows = chosen.repartitionById(cell.slots, F.col("task")).select("key", "value")
        two_phases(rows, cell, place)
        return {}


def choose(tasks: int) -> Mapper:
    """Add the column ``task``: of a key's two candidates the one with fewer rows so far, of this source."""

    def route(batches: Batches) -> Iterator[pa.RecordBatch]:
        loads = [0] * tasks
        candidates: dict[str | None, tuple[int, int]] = {}
        for batch in batches:
            encoded = batch.column("key").dictionary_encode(null_encoding="encode")
            pairs = [_pair(key, tasks, candidates) for key in encoded.dictionary.to_pylist()]
            chosen = np.empty(batch.num_rows, dtype=np.int32)
            for row, code in enumerate(encoded.indices.to_numpy().tolist()):
                one, other = pairs[code]
                task = one if loads[one] <= loads[other] else other
                loads[task] += 1
                chosen[row] = task
            yield pa.RecordBatch.from_arrays([*batch.columns, pa.array(chosen)], names=[*batch.schema.names, "task"])

    return route


def _pair(key: str | None, tasks: int, known: dict[str | None, tuple[int, int]]) -> tuple[int, int]:
    if key not in known:
        first = key_hash(f"1 {key}") % tasks
        known[key] = first, (first + 1 + key_hash(f"2 {key}") % max(1, tasks - 1)) % tasks
    return known[key]
