"""``python -m benchmarks.plain_formats FORMAT INPUT OUTPUT``: the job of B14 in plain PySpark."""

from __future__ import annotations

import sys
import time

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

#: As in ``benchmarks.spark.peers.builtin``, which imports what a script of plain Spark has no need of.
HLL_LG_K = 12

COLUMNS = "key string, value bigint, visitor bigint"
#: The columns of a line of text, as the spec of B14 has them.
OF_A_LINE = (
    "split_part(value, ' ', 1) AS key",
    "CAST(split_part(value, ' ', 2) AS BIGINT) AS value",
    "CAST(split_part(value, ' ', 3) AS BIGINT) AS visitor",
)


def main(kind: str, source: str, output: str) -> None:
    """Count, sum and a sketch by key; the time is told after each part."""
    mark("start, import")
    builder = SparkSession.builder.master("local[*]").appName("plain formats")
    spark = builder.config("spark.ui.enabled", "false").config("spark.driver.memory", "2g").getOrCreate()
    mark("start Spark")
    rows = _read(spark, kind, source)
    result = rows.groupBy("key").agg(
        F.count("*").alias("n"),
        F.sum("value").alias("total"),
        F.hll_sketch_estimate(F.hll_sketch_agg("visitor", HLL_LG_K)).alias("visitors"),
    )
    result.write.parquet(output)
    mark("query")
    spark.stop()


def mark(part: str) -> None:
    """Tell that a part has ended."""
    sys.stdout.write(f"{part} {time.time()}\n")


def _read(spark: SparkSession, kind: str, source: str) -> DataFrame:
    if kind == "text":
        return spark.read.text(source).selectExpr(*OF_A_LINE)
    reader = spark.read.schema(COLUMNS)
    return reader.csv(source, header=True) if kind == "csv" else reader.format(kind).load(source)


if __name__ == "__main__":
    main(*sys.argv[1:])
