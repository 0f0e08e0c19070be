"""The Spark session of a step or of a whole local run, with the settings the stages rely on."""

from __future__ import annotations

import logging
import os
import re
import sys
from pathlib import Path
from typing import Any, cast

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from skewless.documents.job import Job
from skewless_spark.session.class_archive import java_options
from skewless_spark.session.queries import BATCH_BYTES, BATCH_ROWS

#: Set unless spark-submit or spark-defaults.conf sets them.
DEFAULTS = {
    "spark.driver.memory": os.environ.get("SKEWLESS_DRIVER_MEMORY", "2g"),
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.showConsoleProgress": "false",
    # A task writes states and backlog side by side; otherwise Spark would sort the rows first.
    "spark.sql.maxConcurrentOutputFileWriters": "8",
    # The default of 128 keys makes every sketch aggregate sort its input.
    "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "100000",
    # The merge reads states sorted by key and must aggregate them in that order, to be deterministic.
    "spark.sql.execution.replaceHashWithSortAgg": "true",
    "spark.sql.parquet.compression.codec": "zstd",
    # Each page has a checksum, so that a flipped bit in a state or a backlog is found when it is read.
    "spark.hadoop.parquet.page.verify-checksum.enabled": "true",
    # A writer of Parquet first looks at the bytes of a page after 100 rows, which are gigabytes if rows are wide.
    "spark.hadoop.parquet.page.size.row.check.min": "1",
    # Other readers take the default, INT96, as local time.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",  # a step has a commit instead
    # Otherwise PySpark tells the JVM at each call of a function or an operator from which line of Python it comes.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
}
#: Set whatever the configuration says. Otherwise Spark replaces ``${...}`` in the SQL of a spec by a setting, a
#: property of Java, or a variable of the driver's environment: by a password, if a spec names one.
ALWAYS = {
    "spark.sql.variable.substitute": "false",
    # What Spark hands to Python at a time, as it is bounded on its way back.
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(BATCH_ROWS),
    "spark.sql.execution.arrow.maxBytesPerBatch": str(BATCH_BYTES),
}

#: Masters whose executor is in the driver's process. It listens, and other users of the machine can reach it: so it
#: asks for a secret, which Spark makes itself only for these masters.
_IN_ONE_PROCESS = re.compile(r"local(\[[^\]]*\])?")

#: Up to so many rows, rows to parse or to select from, or rows of which a map may make many, and so many bytes a JVM is
#: done sooner if it compiles quickly, and never again with more care: docs/decisions/0023.
QUICK_ROWS, QUICK_LINES, QUICK_ROWS_MAPPED, QUICK_BYTES = 8_000_000, 2_000_000, 500_000, 64 << 20

#: The options of spark-submit, where this process is to start it.
SUBMITTED = "SKEWLESS_SUBMITTED"
_QUIET = Path(__file__).with_name("quiet-log4j2.properties")


def build_session(app: str, master: str | None = None, job: Job | None = None) -> SparkSession:
    """The session of this process.

    Args:
        app: the name in Spark's UI, unless spark-submit was given one, as Airflow's tasks do.
        master: overrides the master of spark-submit or of the configuration; ``local[*]`` if none is set.
        job: what it is for, if that is known: for little input, a JVM that computes in this process compiles quickly.
    """
    # Python workers must use this interpreter; by default they use the first ``python3`` on the PATH.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if "PYSPARK_GATEWAY_PORT" in os.environ or SUBMITTED in os.environ:
        # Under spark-submit a JVM is running already, and its settings have to be asked for.
        start_java()
    given = SparkConf()
    named = given.get("spark.app.name") or app
    builder = SparkSession.builder.appName(app if named == Path(sys.argv[0]).name else named)
    where = master or given.get("spark.master") or "local"
    alone = _IN_ONE_PROCESS.fullmatch(where)
    for name, value in {**DEFAULTS, **({"spark.authenticate": "true"} if alone else {})}.items():
        if not given.contains(name):
            builder = builder.config(name, value)
    for name, value in ALWAYS.items():
        builder = builder.config(name, value)
    if master or not given.contains("spark.master"):
        builder = builder.master(master or "local[*]")
    if not given.contains("spark.submit.deployMode"):
        if where.startswith("local"):
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # so only this machine may reach it
        # A whole run in this process shows its own progress; Spark's UI would only need a port that may be taken.
        builder = builder.config("spark.ui.enabled", "false")
        if not given.contains("spark.driver.extraJavaOptions"):
            options = [f"-Dlog4j2.configurationFile={_QUIET.as_uri()}", *java_options()]
            options += ["-XX:TieredStopAtLevel=1"] if alone and job is not None and is_small(job) else []
            builder = builder.config("spark.driver.extraJavaOptions", " ".join(options))
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    note_checksums(session, noted=not alone)
    _ask_once(session.sparkContext._jvm)  # noqa: SLF001  # there is no other way to it
    # py4j logs each connection that it closes, even when the standard output is closed already.
    logging.getLogger("py4j").setLevel(logging.WARNING)
    return session


def note_checksums(spark: SparkSession, *, noted: bool) -> None:
    """Whether this JVM writes a file of checksums beside each local file: it runs ``chmod`` once more for each."""
    jvm, context = cast("Any", spark)._jvm, cast("Any", spark)._jsc  # noqa: SLF001
    jvm.org.apache.hadoop.fs.FileSystem.getLocal(context.hadoopConfiguration()).setWriteChecksum(noted)


def is_small(job: Job) -> bool:
    """Whether a JVM should compile quickly for the input of a job, and for the states that it takes from other runs."""
    many = job.spec.map and (job.spec.map.mapper or "explode" in str(job.spec.map.select).lower())
    most = QUICK_ROWS_MAPPED if many else QUICK_ROWS if job.counted else QUICK_LINES
    states = [file for part in job.covered.parts for file in part.base_states]
    size = job.size_bytes + sum(file.size_bytes for file in states)
    return size <= QUICK_BYTES and job.rows + sum(file.rows for file in states) <= most


class _Members:
    """A class of the JVM whose members are looked up once: py4j asks the JVM whenever one is named."""

    def __init__(self, found: Any) -> None:
        self._found = found

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._found, name)
        setattr(self, name, member)
        return member


def _ask_once(jvm: Any) -> None:
    """Look up the classes by which PySpark makes columns once, and not at each column."""
    for name in ("functions", "org.apache.spark.sql.functions", "PythonUtils"):
        if name not in vars(jvm):
            setattr(jvm, name, _Members(getattr(jvm, name)))


def start_java() -> None:
    """Start the JVM as spark-submit would with the options of ``$SKEWLESS_SUBMITTED``, unless it runs already."""
    if SUBMITTED in os.environ and "PYSPARK_SUBMIT_ARGS" not in os.environ:
        os.environ["PYSPARK_SUBMIT_ARGS"] = os.environ[SUBMITTED]
        given = os.environ.get("SPARK_SUBMIT_OPTS", "")
        os.environ["SPARK_SUBMIT_OPTS"] = " ".join([given, *java_options()]).strip()
    SparkContext._ensure_initialized()  # noqa: SLF001


def forget_session() -> None:
    """Have the next ``build_session`` return a session without the settings, views and cached frames of this one.

    What the session has shuffled is removed, too: a new process would not have it on its disk.
    """
    used = cast("Any", SparkSession)._instantiatedSession  # noqa: SLF001  # there is no other way to replace it
    if used is None:  # none was built
        return
    used.catalog.clearCache()
    fresh, kind = used.newSession(), used._get_j_spark_session_class(used._jvm)  # noqa: SLF001
    kind.setDefaultSession(fresh._jsparkSession)  # noqa: SLF001
    kind.setActiveSession(fresh._jsparkSession)  # noqa: SLF001
    cast("Any", SparkSession)._instantiatedSession = cast("Any", SparkSession)._activeSession = fresh  # noqa: SLF001
    used._jvm.System.gc()  # noqa: SLF001  # upon which Spark removes what nothing refers to
