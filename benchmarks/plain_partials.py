"""``python -m benchmarks.plain_partials LAKE PARTIALS DAYS CHANGED OUTPUT``: the recipe that people use for windows.

A table has the partial aggregates of each day; those of days that changed are made anew, and a window is merged by SQL.
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from benchmarks.plain_formats import COLUMNS, HLL_LG_K


def main(lake: str, partials: str, days: str, changed: str, output: str) -> None:
    """Make the partials of the changed days, and the result of all days; both are folders like ``date=2026-01-31``."""
    builder = SparkSession.builder.master("local[*]").appName("daily partials").config("spark.ui.enabled", "false")
    builder = builder.config("spark.sql.sources.partitionOverwriteMode", "dynamic").config("spark.driver.memory", "2g")
    spark = builder.getOrCreate()
    reader = spark.read.option("basePath", lake).schema(f"{COLUMNS}, date string")
    rows = reader.parquet(*(f"{lake}/{day}" for day in changed.split(",")))
    sketch = F.hll_sketch_agg("visitor", HLL_LG_K).alias("visitors")
    of_days = rows.groupBy("date", "key").agg(F.count("*").alias("n"), F.sum("value").alias("total"), sketch)
    of_days.repartition("date").write.partitionBy("date").mode("overwrite").parquet(partials)
    merged = spark.read.schema("key string, n bigint, total bigint, visitors binary").parquet(
        *(f"{partials}/{day}" for day in days.split(","))
    )
    visitors = F.hll_sketch_estimate(F.hll_union_agg("visitors")).alias("visitors")
    result = merged.groupBy("key").agg(F.sum("n").alias("n"), F.sum("total").alias("total"), visitors)
    result.write.parquet(output)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
