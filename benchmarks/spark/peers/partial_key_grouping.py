"""PKG: every row goes to the less loaded of two tasks, by what its own source has sent so far.

M. A. U. Nasir et al., "The Power of Both Choices", ICDE 2015: two hashes of the key, local load estimation. The two
candidates are distinct, as in our other measurements of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from benchmarks.spark.cell import Cell, Place
from benchmarks.spark.peers.python_states import Batches, Mapper, read, two_phases
from skewless.routing.hashing import key_hash


@dataclass(frozen=True)
class PartialKeyGrouping:
    """Raw rows to the chosen task, states per task, merged by key."""

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
