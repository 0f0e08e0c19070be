"""The Spark session of a step: how it is built, how its queries are planned, and which paths it can read.

Spark comes without Hadoop's clients of object stores. A user's cluster often has them.
"""

import logging
import os
import re
import shlex
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import lru_cache
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from skewless.errors import RunDirectoryError
from skewless.run.folder import is_object
from skewless.spec.clusters import FIXED, is_fixed
from skewless_spark.session.versions import own_logger, set_names

#: A batch of rows has at most so many rows, and so many bytes unless a single row has more: Arrow's texts end at 2 GiB
#: in a batch, and a JVM that is given some such batches has no memory left.
BATCH_ROWS, BATCH_BYTES = 1 << 16, 64 << 20
#: Batches to batches, as ``mapInArrow`` takes it.
ToBatches = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def planned_once(spark: SparkSession) -> AbstractContextManager[None]:
    """Without adaptive execution, for queries whose partitions are known: it runs a job for each exchange and cache."""
    return under_settings(spark, {"spark.sql.adaptive.enabled": "false"})


@contextmanager
def under_settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Spark with some settings, and then with what it had before."""
    # One by one: all settings together are a call to the JVM for each.
    before: dict[str, str | None] = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, value_before in before.items():
            if value_before is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, value_before)


def map_in_batches(rows: DataFrame, function: ToBatches, schema: StructType | str) -> DataFrame:
    """``mapInArrow``, with what the function puts out in batches that Spark has memory for.

    All that comes from Python goes this way. What goes to Python is bounded by settings (``session.ALWAYS``).
    """
    return rows.mapInArrow(bounded(function), schema)


def bounded(function: ToBatches) -> ToBatches:
    """The function, with what it puts out cut by ``cut_batch``."""
    return lambda batches: chain.from_iterable(map(cut_batch, function(batches)))


def cut_batch(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The rows of a batch within ``BATCH_ROWS`` and ``BATCH_BYTES``: as halves of halves, since rows are unlike."""
    if batch.num_rows > 1 and (batch.num_rows > BATCH_ROWS or sum(map(_decoded_bytes, batch.columns)) > BATCH_BYTES):
        half = batch.num_rows // 2
        yield from cut_batch(batch.slice(0, half))
        yield from cut_batch(batch.slice(half))
    else:
        yield batch


def _decoded_bytes(column: pa.Array) -> int:
    if not pa.types.is_dictionary(column.type):
        return int(column.nbytes)
    try:
        lengths = pc.binary_length(column.dictionary)
    except pa.ArrowNotImplementedError:
        return int(column.indices.nbytes + column.dictionary.nbytes)  # of numbers, which are all as short
    return int(column.indices.nbytes + (pc.sum(lengths.take(column.indices)).as_py() or 0))


#: Set unless spark-submit or spark-defaults.conf sets them.
DEFAULTS = {
    "spark.driver.memory": os.environ.get("SKEWLESS_DRIVER_MEMORY", "2g"),
    "spark.ui.showConsoleProgress": "false",
    # A task writes states and backlog side by side; otherwise Spark would sort the rows first.
    "spark.sql.maxConcurrentOutputFileWriters": "8",
    # The default of 128 keys makes every sketch aggregate sort its input.
    "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "100000",
    "spark.sql.parquet.compression.codec": "zstd",
    # Each page has a checksum, so that a flipped bit in a state or a backlog is found when it is read.
    "spark.hadoop.parquet.page.verify-checksum.enabled": "true",
    # A writer of Parquet first looks at the bytes of a page after 100 rows, which are gigabytes if rows are wide.
    "spark.hadoop.parquet.page.size.row.check.min": "1",
    "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",  # a step has a commit instead
    # Otherwise PySpark tells the JVM at each call of a function or an operator from which line of Python it comes.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
}
#: Set whatever the configuration says.
ALWAYS = {
    **FIXED,
    # What Spark hands to Python at a time, as it is bounded on its way back.
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(BATCH_ROWS),
    "spark.sql.execution.arrow.maxBytesPerBatch": str(BATCH_BYTES),
}

#: Masters whose executor is in the driver's process. It listens, and other users of the machine can reach it: so it
#: asks for a secret, which Spark makes itself only for these masters.
_IN_ONE_PROCESS = re.compile(r"local(\[[^\]]*\])?")
#: Such a master, and how many tasks it runs at one time.
_LOCAL = re.compile(r"local(?:\[(\d+|\*)(?:, *\d+)?\])?")

#: The options of spark-submit, where this process is to start it.
SUBMITTED = "SKEWLESS_SUBMITTED"
_QUIET = Path(__file__).with_name("quiet-log4j2.properties")


def build_session(app: str, master: str | None = None) -> SparkSession:
    """A new session of this process's Spark, which is started if there is none.

    The session has no settings, views and functions of another one.

    Args:
        app: the name in Spark's UI, unless spark-submit was given one, as Airflow's tasks do.
        master: overrides the master of spark-submit or of the configuration; ``local[*]`` if none is set.
    """
    # Python workers must use this interpreter; by default they use the first ``python3`` on the PATH.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if "PYSPARK_GATEWAY_PORT" in os.environ or SUBMITTED in os.environ:
        # Under spark-submit a JVM is running already, and its settings have to be asked for.
        start_java()
    configured = SparkConf()
    name = configured.get("spark.app.name") or app
    builder = SparkSession.builder.appName(app if name == Path(sys.argv[0]).name else name)
    where = master or configured.get("spark.master") or "local"
    secret = {"spark.authenticate": "true"} if _IN_ONE_PROCESS.fullmatch(where) else {}
    for setting, value in {**DEFAULTS, **secret}.items():
        if not configured.contains(setting):
            builder = builder.config(setting, value)
    if master or not configured.contains("spark.master"):
        builder = builder.master(master or "local[*]")
    if not configured.contains("spark.submit.deployMode"):
        if where.startswith("local"):
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # so only this machine may reach it
        # A whole run in this process shows its own progress; Spark's UI would only need a port that may be taken.
        builder = builder.config("spark.ui.enabled", "false")
        if not configured.contains("spark.driver.extraJavaOptions"):
            builder = builder.config("spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile={_QUIET.as_uri()}")
    session = builder.getOrCreate().newSession()
    for setting in filter(is_fixed, set_names(session)):
        session.conf.unset(setting)
    for setting, value in ALWAYS.items():
        session.conf.set(setting, value)
    session.sparkContext.setLogLevel("ERROR")
    _quieten()
    return session


def _quieten() -> None:
    # py4j logs each connection that it closes, even when the standard output is closed already.
    logging.getLogger("py4j").setLevel(logging.WARNING)
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):  # they write each error with its stack
        own_logger(name).setLevel(logging.CRITICAL)


def start_soon(app: str, master: str | None) -> None:
    """Begin to start Spark in a thread: seconds in which this process can import, list and sample.

    Whoever then builds a session waits for it, and meets what keeps it from starting.
    """

    def start() -> None:
        with suppress(Exception):
            build_session(app, master)

    threading.Thread(target=start, name="start of Spark", daemon=True).start()


def slots_to_come(master: str | None) -> int | None:
    """How many tasks a session of this process will run at one time, before there is one; None unless ``local``."""
    if SUBMITTED in os.environ:
        options = shlex.split(os.environ[SUBMITTED])
        master = master or next((value for name, value in pairwise(options) if name == "--master"), None)
    elif "PYSPARK_GATEWAY_PORT" in os.environ:
        start_java()
        master = master or SparkConf().get("spark.master")
    local = _LOCAL.fullmatch(master or "local[*]")
    return (len(os.sched_getaffinity(0)) if local[1] == "*" else int(local[1] or 1)) if local else None


def start_java() -> None:
    """Start the JVM as spark-submit would with the options of ``$SKEWLESS_SUBMITTED``, unless it runs already."""
    if SUBMITTED in os.environ:
        os.environ.setdefault("PYSPARK_SUBMIT_ARGS", os.environ[SUBMITTED])
    SparkContext.setSystemProperty("skewless", "started")  # any call starts it


def jvm_of(spark: SparkSession) -> Any:
    """The JVM of a session, for what PySpark has no name for: Hadoop's file systems, Spark's parser and its records."""
    return cast("Any", spark)._jvm  # noqa: SLF001


def query_in_jvm(rows: DataFrame) -> Any:
    """A frame's ``QueryExecution``, which has its plans."""
    return cast("Any", rows)._jdf.queryExecution()  # noqa: SLF001


def session_in_jvm(spark: SparkSession) -> Any:
    """A session as the JVM has it: a ``org.apache.spark.sql.classic.SparkSession``."""
    return cast("Any", spark)._jsparkSession  # noqa: SLF001


#: What Spark says of a scheme that it has no file system for, or whose file system is not installed.
_MISSING = ("UnsupportedFileSystemException", "No FileSystem for scheme", "ClassNotFoundException")


def spark_reads(spark: SparkSession, location: str) -> bool:
    """Whether Spark has a file system for a path. For one on no object store it is expected to have one."""
    return not is_object(location) or _has_file_system(spark, location.partition("://")[0])


def require_writer(spark: SparkSession, location: str, kind: str) -> None:
    """Require that a result can be written in a format: Parquet always can, the others are written by Spark alone."""
    if kind != "parquet" and not spark_reads(spark, location):
        raise RunDirectoryError(
            f"run directory {location}", f"a path that Spark can write, for a result as {kind}",
            "one that it has no file system for", "publish parquet, or give Spark the file system of this scheme",
        )  # fmt: skip


@lru_cache(maxsize=8)
def _has_file_system(spark: SparkSession, scheme: str) -> bool:
    configuration = session_in_jvm(spark).sessionState().newHadoopConf()
    try:
        jvm_of(spark).org.apache.hadoop.fs.FileSystem.getFileSystemClass(scheme, configuration)
    except Py4JJavaError as err:
        if any(word in str(err) for word in _MISSING):
            return False
        raise
    return True
