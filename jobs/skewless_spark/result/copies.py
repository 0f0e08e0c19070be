"""Copies of the results that a stage has evaluated, without the columns that are ours: made by Arrow, without Spark.

A copy is made only if Arrow writes each column as Spark has written it, so that the published files are of one kind
whichever way they were made.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructField, StructType

from skewless.documents.commit import CommittedFile
from skewless.run.directory import Attempt, RunDirectory
from skewless_spark.session.queries import planned_once
from skewless_spark.sources.formats.parquet import open_parquet
from skewless_spark.sources.worker_files import SCHEMA_NOTE
from skewless_spark.states.columns import WHOLE, JobColumns
from skewless_spark.states.committed_files import damaged, noted_schema, write_files

#: Where an attempt at the merge writes the result; and, before that, the results of keys with several states.
FOLDER, _MERGED = "data", "merged"
#: Results of at most this many bytes are copied by the driver.
COPIED_BYTES = 64 << 20
#: Rows that are copied at a time.
_BATCH_ROWS = 1 << 16


class AsSpark(NamedTuple):
    """What Arrow writes as Spark has written it: columns, compression, and the note of Spark's types."""

    kind: pa.Schema
    codec: str
    noted: StructType | None

    @classmethod
    def of(cls, run: RunDirectory, files: Sequence[CommittedFile], own: Mapping[str, str]) -> AsSpark | None:
        """How some columns of small files are copied, each under its own name.

        All copies have the schema of one file: results of a stage and merged ones may differ in what may be null.

        Returns:
            None if the files are large, or Arrow writes a column otherwise.
        """
        if sum(file.size_bytes for file in files) > COPIED_BYTES:
            return None
        with run.fs.open(f"{run.root}/{files[0].path}", "rb") as opened:
            parquet, probe = open_parquet(opened), io.BytesIO()
            # All may be null, as those that Spark reads from files.
            columns = [parquet.schema_arrow.field(name).with_name(own[name]).with_nullable(True) for name in own]
            codec = parquet.metadata.row_group(0).column(0).compression if parquet.num_row_groups else "SNAPPY"
            found = cls(pa.schema(columns), codec, _noted(noted_schema(run, files[0]), own))
            found.writer(probe).close()
            same = _leaves(pq.ParquetFile(probe), {name: name for name in own.values()}) == _leaves(parquet, own)
            return found if same else None

    def writer(self, target: Any) -> pq.ParquetWriter:
        """As Spark writes: its compression, checksums of pages, its note, and small decimals as integers."""
        writer = pq.ParquetWriter(
            target, self.kind, compression=self.codec, write_page_checksum=True, store_schema=False,
            store_decimal_as_integer=True, version="1.0",
        )  # fmt: skip
        if self.noted is not None:
            writer.add_key_value_metadata({SCHEMA_NOTE: self.noted.json().encode()})
        return writer


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

    Raises:
        RunDirectoryError: a file is not the one that was committed, or is damaged.
    """
    with ThreadPoolExecutor(max_workers=8) as pool:
        list(pool.map(run.verify, files))
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


def _leaves(parquet: pq.ParquetFile, own: Mapping[str, str]) -> set[tuple[object, ...]]:
    found = set[tuple[object, ...]]()
    for number in range(len(parquet.schema)):
        leaf = parquet.schema.column(number)
        # A dot may be part of the name of a key column, or come before the parts of a nested column.
        name = next((name for name in own if f"{leaf.path}.".startswith(f"{name}.")), None)
        if name is not None:
            path, nullable = own[name] + leaf.path[len(name) :], parquet.schema_arrow.field(name).nullable
            levels = (leaf.max_definition_level - nullable, leaf.max_repetition_level)
            found.add((path, leaf.physical_type, leaf.length, str(leaf.logical_type), *levels))
    return found


def _noted(noted: StructType | None, own: Mapping[str, str]) -> StructType | None:
    if noted is None:
        return None
    fields = {field.name: field for field in noted}
    return StructType([
        StructField(name, fields[number].dataType, nullable=True, metadata=fields[number].metadata)
        for number, name in own.items()
    ])  # fmt: skip
