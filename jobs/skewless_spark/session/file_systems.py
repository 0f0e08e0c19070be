"""Which paths Spark itself can read and write: a cluster has a file system for a scheme, or has not.

Spark comes without Hadoop's clients of object stores. A user's cluster often has them.
"""

from __future__ import annotations

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from skewless.errors import RunDirectoryError
from skewless.run.objects.location import is_object
from skewless_spark.session.session import jvm_of, session_in_jvm

#: What Spark says of a scheme that it has no file system for, or whose file system is not installed.
_MISSING = ("UnsupportedFileSystemException", "No FileSystem for scheme", "ClassNotFoundException")
#: What was found, by scheme: the answer stays the same as long as a process has its JVM.
_found: dict[str, bool] = {}


def spark_reads(spark: SparkSession, location: str) -> bool:
    """Whether Spark has a file system for a path. For one on no object store it is expected to have one."""
    if not is_object(location):
        return True
    scheme = location.partition("://")[0]
    if scheme not in _found:
        _found[scheme] = _has_file_system(spark, scheme)
    return _found[scheme]


def require_writer(spark: SparkSession, location: str, kind: str) -> None:
    """Require that a result can be written in a format: Parquet always can, the others are written by Spark alone.

    Raises:
        RunDirectoryError: Spark has no file system for the run directory.
    """
    if kind != "parquet" and not spark_reads(spark, location):
        raise RunDirectoryError(
            f"run directory {location}", f"a path that Spark can write, for a result as {kind}",
            "one that it has no file system for", "publish parquet, or give Spark the file system of this scheme",
        )  # fmt: skip


def _has_file_system(spark: SparkSession, scheme: str) -> bool:
    configuration = session_in_jvm(spark).sessionState().newHadoopConf()
    try:
        jvm_of(spark).org.apache.hadoop.fs.FileSystem.getFileSystemClass(scheme, configuration)
    except Py4JJavaError as err:
        if any(word in str(err) for word in _MISSING):
            return False
        raise
    return True
