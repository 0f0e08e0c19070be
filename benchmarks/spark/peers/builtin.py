"""Plain Spark: ``groupBy().agg`` of built-in functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from benchmarks.spark.cell import Cell, Place
from benchmarks.spark.peers.python_states import read
from benchmarks.spark.setting import BY_FILE, PLAIN, settings

#: ``k`` of a KLL sketch whose rank error is that of our default accuracy of 75.
KLL_K = 200
#: The logarithm of the registers of a HyperLogLog sketch with our default standard deviation of 2 %.
HLL_LG_K = 12


def _kll(call: Mapping[str, Any]) -> Column:
    return F.kll_sketch_get_quantile_bigint(
        F.kll_sketch_agg_bigint(call["column"], F.lit(KLL_K)), F.lit(call["percentage"])
    )


EXPRESSIONS: dict[str, Callable[[Mapping[str, Any]], Column]] = {
    "count": lambda _: F.count(F.lit(1)),
    "sum": lambda call: F.sum(call["column"]),
    "approx_count_distinct": lambda call: F.hll_sketch_estimate(F.hll_sketch_agg(call["column"], HLL_LG_K)),
    "approx_percentile": _kll,
}


@dataclass(frozen=True)
class Builtin:
    """``groupBy().agg``.

    Attributes:
        tuned: whether somebody raised the number of keys that sketches are aggregated for in memory.
        bypass: whether to turn partial aggregation off, by a setting of Spark (SPARK-57688).
        by_file: whether every file is a split of its own, as large files are; small ones are read several at a time.
    """

    tuned: bool = False
    bypass: bool = False
    by_file: bool = False

    @property
    def name(self) -> str:
        """See ``Peer``."""
        return f"builtin{' tuned' if self.tuned else ''}{' bypass' if self.bypass else ''}"

    def run(self, spark: SparkSession, cell: Cell, place: Place) -> Mapping[str, float]:
        """See ``Peer``; AQE is on, as it is by default."""
        threshold = {"spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "10000000"} if self.tuned else {}
        bypass = {"spark.sql.execution.bypassPartialAggregation": "true"} if self.bypass else {}
        splits = BY_FILE if self.by_file else {}
        with settings(
            spark, {**PLAIN, **threshold, **bypass, **splits, "spark.sql.shuffle.partitions": str(2 * cell.slots)}
        ):
            expressions = [EXPRESSIONS[call["function"]](call).alias(name) for name, call in cell.aggregates.items()]
            read(spark, place).groupBy("key").agg(*expressions).write.parquet(str(place.output))
        return {}
