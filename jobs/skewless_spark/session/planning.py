"""How Spark plans the queries of a step."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

_ADAPTIVE = "spark.sql.adaptive.enabled"


@contextmanager
def planned_once(spark: SparkSession) -> Iterator[None]:
    """Without adaptive execution, for queries whose partitions are known: it runs a job for each exchange and cache."""
    before = str(spark.conf.get(_ADAPTIVE))
    spark.conf.set(_ADAPTIVE, "false")
    try:
        yield
    finally:
        spark.conf.set(_ADAPTIVE, before)
