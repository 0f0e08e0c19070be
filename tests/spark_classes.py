"""An archive of the classes that Spark loads: a JVM that has it is up in a third of the time.

``python -m tests.spark_classes`` makes it, with a small run that loads them. A JVM that it does not fit, because it
is another one or has other jars, does without it.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

ARCHIVE = Path(sys.prefix) / "spark.jsa"
#: Each JVM of a test lives for seconds or minutes: how soon it is up matters, and not how fast its code is in the end.
SOON_UP = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xlog:disable"


def options() -> str:
    """What ``spark-submit`` is to give each JVM of the tests (``SPARK_SUBMIT_OPTS``)."""
    return f'{SOON_UP} -XX:SharedArchiveFile="{ARCHIVE}"' if ARCHIVE.exists() else SOON_UP


def make() -> None:
    """Run a small job, and have its JVM write down which classes it has loaded."""
    draft = ARCHIVE.with_suffix(".draft")
    os.environ["SPARK_SUBMIT_OPTS"] = f'{SOON_UP} -XX:ArchiveClassesAtExit="{draft}"'
    import pyarrow as pa
    from pyspark import SparkContext

    from skewless_spark.session.session import build_session
    from tests.spark.scenario import run_job, spec_of, write_input

    spark = build_session("classes", "local[2]")
    gateway = SparkContext._gateway
    assert gateway is not None
    with tempfile.TemporaryDirectory() as folder:
        keys = [f"k{number % 9}" for number in range(900)]
        path = write_input(Path(folder) / "input", pa.table({"key": keys, "value": range(900)}), files=4)
        aggregates = {
            "n": "count",
            "mean": {"function": "avg", "column": "value"},
            "different": {"function": "approx_count_distinct", "column": "value"},
            "histogram": {"function": "streaming_histogram", "column": "value"},
        }
        routing = {"reducers": 3, "waves": [1, 1], "stage_overhead": 0}
        run_job(spark, spec_of(path, "key", aggregates, routing=routing), Path(folder) / "run")
        for kind in ("csv", "json", "orc"):
            spark.read.parquet(str(path)).write.format(kind).save(f"{folder}/{kind}")
            spark.read.format(kind).load(f"{folder}/{kind}").collect()
    spark.stop()
    gateway.shutdown()
    process = gateway.proc
    process.stdin.close()
    process.wait()
    draft.replace(ARCHIVE)


if __name__ == "__main__":
    make()
