"""B1 with its input on an S3 server: ``make bench ONLY=B1_bucket``.

The peer reads the same two columns of the same files with pyarrow and its own S3 client, and counts and sums by key in
memory. Ours is a whole run from ``prepare`` to the committed result, in a warm session: its Python workers read, since
Spark has no file system for the bucket. The same run is measured with the same files on a disk, where Spark reads them
itself. All take turns, and their answers are compared.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyarrow.fs import FileSystem, S3FileSystem
from pyspark.sql import SparkSession

from benchmarks.result_files import DATA, in_words, machine, page_of, table
from benchmarks.spark.cell import COUNT_AND_SUM, Cell, Place
from benchmarks.spark.datasets import Dataset, written
from benchmarks.spark.measurement import check
from benchmarks.spark.peers.skewless import DATE, Skewless
from benchmarks.spark.setting import CORES, session
from skewless.run.directory import RunDirectory
from skewless_spark.entries.pipeline import run_stages
from skewless_spark.prepare.prepare import prepare
from skewless_spark.result.merge import merge_states
from tests.object_stores import BUCKET, ObjectServer, as_client, object_server

NAME = "b1_bucket"
ROWS, KEYS, REPETITIONS = 20_000_000, 100_000, 3
PEER, OURS, READING, NEAR = "pyarrow, bucket", "skewless, bucket", "pyarrow only reads, bucket", "skewless, disk"


def measure(rows: int = ROWS, repetitions: int = REPETITIONS, root: Path = DATA) -> dict[str, Any]:
    """Each way in turn, once before it counts; the input is kept below ``root``, and scratch is."""
    base = root.resolve()
    base.mkdir(parents=True, exist_ok=True)
    cell = Cell("z=1.6", Dataset(rows=rows, keys=KEYS, exponent=1.6), COUNT_AND_SUM, CORES)
    folder = written(cell.data, base)
    seconds: dict[str, list[float]] = {}
    with (
        tempfile.TemporaryDirectory(dir=base) as scratch,
        object_server("localbucket", Path(scratch) / "server") as server,
        as_client(server.environment),
        session(CORES) as spark,
    ):
        _upload(server, folder)
        spark.sparkContext.environment.update(server.environment)
        for number in range(repetitions + 1):
            answers = {}
            for way, work in _ways(spark, cell, folder, server, Path(scratch) / f"{number}").items():
                begun = time.monotonic()
                answers[way] = work()
                if number:
                    seconds.setdefault(way, []).append(round(time.monotonic() - begun, 3))
            for way in (OURS, NEAR):
                check(cell, way, _sorted(answers[way]), _sorted(answers[PEER]))
    return {
        "rows": rows, "keys": KEYS, "files": cell.data.files,
        "bytes": sum(file.stat().st_size for file in folder.iterdir()), "repetitions": repetitions,
        "setting": machine(pyspark="pyspark", pyarrow="pyarrow", obstore="obstore", localbucket="localbucket"),
        "seconds": seconds,
    }  # fmt: skip


def page(document: Mapping[str, Any]) -> str:
    """The page, in Markdown."""
    peer = statistics.median(document["seconds"][PEER])
    medians = {way: statistics.median(took) for way, took in document["seconds"].items()}
    lines = [(way, f"{seconds:.2f}", f"{seconds / peer:.2f}") for way, seconds in medians.items()]
    about = (
        f"Count and sum of {document['rows']:,} rows of {document['keys']:,} keys, Zipf 1.6, in {document['files']}"
        f" Parquet files of {document['bytes'] / 1e6:,.0f} MB together. pyarrow reads them with its own S3 client and"
        " all cores, and groups them in memory. Ours is a whole run, from listing the input to the committed result, in"
        f" a warm session. The S3 server is a process on this machine, too. Setting:"
        f" {in_words(document['setting'])}."
    )
    found = table(("way", "median, s", f"over {PEER}"), lines)
    return page_of("B1 with its input on an S3 server", about, found)


def _upload(server: ObjectServer, folder: Path) -> None:
    for file in sorted(folder.glob("part-*.parquet")):
        server.put(f"b1/{file.name}", file.read_bytes())


def _ways(
    spark: SparkSession, cell: Cell, folder: Path, server: ObjectServer, scratch: Path
) -> dict[str, Callable[[], pa.Table]]:
    s3 = S3FileSystem(
        endpoint_override=server.endpoint, access_key=server.environment["AWS_ACCESS_KEY_ID"],
        secret_key=server.environment["AWS_SECRET_ACCESS_KEY"], region="us-east-1",
    )  # fmt: skip
    return {
        READING: lambda: _read(s3, f"{BUCKET}/b1"),
        PEER: lambda: _grouped(_read(s3, f"{BUCKET}/b1")),
        OURS: lambda: _run(spark, cell, f"s3://{BUCKET}/b1", scratch / "bucket"),
        NEAR: lambda: _run(spark, cell, str(folder), scratch / "disk"),
    }


def _read(fs: FileSystem, folder: str) -> pa.Table:
    return ds.dataset(folder, format="parquet", filesystem=fs).to_table(columns=["key", "value"])


def _grouped(rows: pa.Table) -> pa.Table:
    found = rows.group_by("key").aggregate([("value", "count"), ("value", "sum")])
    return found.rename_columns({"value_count": "n", "value_sum": "total"})


def _run(spark: SparkSession, cell: Cell, path: str, scratch: Path) -> pa.Table:
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    run = RunDirectory(str(scratch / "run"))
    spec = Skewless("auto").spec(cell, Place(scratch, scratch / "output", scratch))
    prepare(run, spec.model_copy(update={"input": spec.input.model_copy(update={"path": path})}), DATE, str(scratch))
    run_stages(spark, run)
    merge_states(spark, run)
    files = run.committed("result").of_kind("result")
    return pa.concat_tables(pq.read_table(run.path(file.path)) for file in files)


def _sorted(answer: pa.Table) -> pa.Table:
    table = answer.select(["key", *COUNT_AND_SUM]).combine_chunks()
    return table.take(pc.sort_indices(table["key"]))
