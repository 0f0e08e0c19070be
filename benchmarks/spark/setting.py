"""The Spark session of a row, and what machine and versions it runs on."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

from pyspark.sql import SparkSession

from skewless_spark.aggregates import REGISTRY
from skewless_spark.session.session import DEFAULTS, build_session, jvm_of

ROOT = Path(__file__).parents[2]
#: Tasks side by side where the cost is what the processor does.
CORES = 2
#: A distribution like any user's, with an entry point for each aggregate of the benchmarks.
PLUGIN = Path(__file__).parent / "plugin"

#: Spark's own values of what our sessions set otherwise: what somebody has who has never heard of us.
PLAIN = {
    "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "128",
    "spark.sql.execution.replaceHashWithSortAgg": "false",
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "true",
}
#: Every file a partition of its own: a file counts as so many bytes that no second one fits.
BY_FILE = {"spark.sql.files.openCostInBytes": "134217728"}


def know_plugin() -> None:
    """Find the aggregates of the benchmarks in this process, which are never installed."""
    if str(PLUGIN) not in sys.path:
        sys.path.append(str(PLUGIN))
        REGISTRY.look_again()


@contextmanager
def session(slots: int) -> Iterator[SparkSession]:
    """A session with so many slots, whose workers know the aggregates of the benchmarks."""
    know_plugin()
    spark = build_session("benchmarks", f"local[{slots}]")
    # An installed package needs none of this; ours is never installed. Workers take it from here.
    spark.sparkContext.environment["PYTHONPATH"] = os.pathsep.join((str(ROOT), str(PLUGIN)))
    try:
        yield spark
    finally:
        spark.stop()


@contextmanager
def settings(spark: SparkSession, values: Mapping[str, str]) -> Iterator[None]:
    """Spark SQL settings for a while."""
    before = {name: spark.conf.get(name, None) for name in values}
    for name, value in values.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)


def described(spark: SparkSession) -> dict[str, str | int | float]:
    """The machine and the versions; nothing that says whose machine it is."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "cores": os.cpu_count() or 0,
        "memory_gib": round(memory, 1),
        "system": platform.system(),
        "python": platform.python_version(),
        "spark": spark.version,
        "java": str(jvm_of(spark).java.lang.System.getProperty("java.version")),
        "pyarrow": version("pyarrow"),
        "numpy": version("numpy"),
        "pandas": version("pandas"),
        "skewless": version("skewless"),
        "driver_memory": DEFAULTS["spark.driver.memory"],
    }
