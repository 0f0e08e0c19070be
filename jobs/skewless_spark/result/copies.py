"""Copies of the results that a stage has evaluated, without the columns that are ours: made by Arrow, without Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from skewless.documents.commit import CommittedFile
from skewless.run.directory import Attempt, RunDirectory
from skewless_spark.session.session import planned_once
from skewless_spark.sources.formats.parquet import open_parquet
from skewless_spark.states.committed_files import AsSpark, damaged, write_files
from skewless_spark.states.job_columns import WHOLE, JobColumns

#: Where an attempt at the merge writes the result; and, before that, the results of keys with several states.
FOLDER, _MERGED = "data", "merged"
#: Rows that are copied at a time.
_BATCH_ROWS = 1 << 16


def write_copies(
    spark: SparkSession,
    run: RunDirectory,
    attempt: Attempt,
    columns: JobColumns,
    files: Sequence[CommittedFile],
    as_spark: AsSpark,
    parts: DataFrame | None,
) -> dict[str, int]:
    """Write the results of an only stage into at most as many files as the output may have.

    Args:
        files: with results.
        as_spark: how they are copied.
        parts: the results of keys that have several states; None if there are none.

    Returns:
        ``rows``, the input rows that the results stand for, and ``keys``, the number of results.
    """
    with ThreadPoolExecutor(max_workers=8) as pool:
        sources = [f"{run.root}/{file.path}" for file in sorted(files, key=lambda one: -one.size_bytes)]
        if parts is not None:
            with planned_once(spark):
                write_files(parts, attempt, _MERGED)
            sources += attempt.listed(_MERGED)
        run.fs.makedirs(f"{run.root}/{attempt.folder}/{FOLDER}", exist_ok=True)
        into = min(columns.job.spec.output.files, len(sources))
        own = columns.own_names

        def copied(number: int) -> tuple[int, int]:
            target = f"{run.root}/{attempt.folder}/{FOLDER}/part-{number:05d}.parquet"
            with run.fs.open(target, "wb") as out, as_spark.writer(out) as writer:
                return _copy(run.fs, sources[number::into], writer, as_spark.kind, own)

        counts = list(pool.map(copied, range(into)))
    return {"rows": sum(rows for rows, _ in counts), "keys": sum(keys for _, keys in counts)}


def _copy(
    fs: Any, sources: Sequence[str], writer: pq.ParquetWriter, kind: pa.Schema, own: Mapping[str, str]
) -> tuple[int, int]:
    rows = keys = 0
    for batch in _batches(fs, sources, own):
        rows += int(pc.sum(batch["rows"]).as_py() or 0)
        keys += len(batch)
        if len(batch):
            writer.write_batch(pa.RecordBatch.from_arrays([batch[name] for name in own], schema=kind))
    return rows, keys


def _batches(fs: Any, sources: Sequence[str], own: Mapping[str, str]) -> Iterator[pa.RecordBatch]:
    for source in sources:
        try:
            with fs.open(source, "rb") as opened:
                parquet = open_parquet(opened)
                flags = [WHOLE] if WHOLE in parquet.schema_arrow.names else []  # all keys are whole that were merged
                for batch in parquet.iter_batches(_BATCH_ROWS, columns=[*own, "rows", *flags]):
                    yield batch.filter(batch[WHOLE]) if flags else batch
        except (OSError, pa.ArrowException) as err:
            raise damaged(source, err) from err
