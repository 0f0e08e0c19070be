"""Skewless on Spark, measured against what people use: the rows B1 to B7, B9 and B10 of the benchmarks."""

from __future__ import annotations

import os

# Read when skewless_spark.session.session is imported, and fixed when the JVM starts: 20 M rows want more than 2 GiB.
os.environ.setdefault("SKEWLESS_DRIVER_MEMORY", "6g")
