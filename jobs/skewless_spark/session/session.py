"""The Spark session of a step or of a whole local run, with the settings the stages rely on."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path
from typing import Any, cast

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from skewless_spark.session.connect import connected, remote_session

#: Set unless spark-submit or spark-defaults.conf says otherwise.
DEFAULTS = {
    "spark.driver.memory": os.environ.get("SKEWLESS_DRIVER_MEMORY", "2g"),
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.showConsoleProgress": "false",
    # A stage writes states and backlog of one task side by side; the alternative is to sort them apart.
    "spark.sql.maxConcurrentOutputFileWriters": "8",
    # The default of 128 keys makes every sketch aggregate sort its input.
    "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "100000",
    # The merge reads states sorted by key: take them in that order, which makes it deterministic.
    "spark.sql.execution.replaceHashWithSortAgg": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    "spark.sql.parquet.compression.codec": "zstd",
    # Each page carries a checksum of its own: a bit that turned in a state or a backlog is found where it is read.
    "spark.hadoop.parquet.page.verify-checksum.enabled": "true",
    # The default, INT96, is read by others as local time.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}


_QUIET = Path(__file__).with_name("quiet-log4j2.properties")


def build_session(app: str, master: str | None = None) -> SparkSession:
    """The session of this process.

    Args:
        app: shown in Spark's UI, unless spark-submit was given a name, as Airflow's tasks give theirs.
        master: overrides what spark-submit or the configuration says; ``local[*]`` if nobody says.
    """
    if connected():
        return _connected_session(app)
    # Python workers must be this interpreter, or they are whatever ``python3`` is.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        # Under spark-submit there is a JVM already, and its settings are known only once it is asked.
        SparkContext._ensure_initialized()  # noqa: SLF001
    given = SparkConf()
    builder = SparkSession.builder.appName(_submitted_name(given) or app)
    for name, value in DEFAULTS.items():
        if not given.contains(name):
            builder = builder.config(name, value)
    if master or not given.contains("spark.master"):
        builder = builder.master(master or "local[*]")
    if not given.contains("spark.submit.deployMode"):
        if (master or given.get("spark.master") or "local").startswith("local"):
            # Driver and block manager ask nobody for a password, and nobody else has to reach them.
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        # A whole run in this process: nobody looks at its UI, whose port may be taken, and it
        # says itself what it does.
        builder = builder.config("spark.ui.enabled", "false")
        if not given.contains("spark.driver.extraJavaOptions"):
            builder = builder.config("spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile={_QUIET.as_uri()}")
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    # It tells of each connection that it closes, after whoever listened is gone.
    logging.getLogger("py4j").setLevel(logging.WARNING)
    return session


def _submitted_name(given: SparkConf) -> str | None:
    """The name that spark-submit was given; without one it takes that of the script."""
    name = given.get("spark.app.name")
    return None if name == Path(sys.argv[0]).name else name


def _connected_session(step: str) -> SparkSession:
    """A session of a server, whose own settings stand; what concerns all its sessions is not ours to set."""
    session = remote_session(step)
    given = cast("Any", session.conf).getAll
    for name, value in DEFAULTS.items():
        # What is Hadoop's and not Spark's has this prefix in a server's settings, and none in those of a session.
        ours = name.removeprefix("spark.hadoop.")
        if ours.startswith(("spark.sql.", "parquet.")) and name not in given and ours not in given:
            session.conf.set(ours, value)
    return session
