"""Parquet files that Spark's Python workers read and write themselves, where Spark has no file system for a path."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from skewless.errors import RunDirectoryError
from skewless.run.objects.location import is_object, open_location
from skewless_lake.staging import all_nullable
from skewless_spark.session.session import cut_batch, map_in_batches
from skewless_spark.session.versions import arrow_schema
from skewless_spark.sources.cutting import rows_at_a_time
from skewless_spark.sources.formats.parquet import open_parquet

Batches = Iterable[pa.RecordBatch]
#: The key under which Spark records the columns of a frame in the Parquet files that it writes.
SCHEMA_NOTE = b"org.apache.spark.sql.parquet.row.metadata"
#: The bytes that a task reads, and those of a row group that it writes, in memory.
_TASK_BYTES, _GROUP_BYTES = 64 << 20, 64 << 20


class _Piece(NamedTuple):
    """The row groups of a file whose number, modulo ``of``, is ``number``."""

    path: str
    number: int
    of: int


def read_in_workers(spark: SparkSession, schema: StructType, files: Sequence[tuple[str, int]]) -> DataFrame:
    """Exactly these Parquet files, read by workers with pyarrow.

    Args:
        files: the path and the bytes of each. A large one is read by several tasks.
    """
    pieces = [
        _Piece(path, number, of)
        for path, size in files
        for of in [max(1, -(-size // _TASK_BYTES))]
        for number in range(of)
    ]
    columns = schema.fieldNames()

    def read(batches: Batches) -> Iterator[pa.RecordBatch]:
        wanted = all_nullable(arrow_schema(schema))
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from _read(pieces[number], columns, wanted)

    return map_in_batches(spark.range(0, len(pieces), 1, len(pieces)), read, schema)


def _read(piece: _Piece, columns: list[str], wanted: pa.Schema) -> Iterator[pa.RecordBatch]:
    try:
        fs, file = open_location(piece.path)
        with fs.open(file, "rb") as opened:
            parquet = open_parquet(opened, pre_buffer=True)
            groups = list(range(parquet.num_row_groups))[piece.number :: piece.of]
            rows = rows_at_a_time(parquet.metadata, groups, columns)
            for batch in parquet.iter_batches(rows, row_groups=groups, columns=columns, use_threads=False):
                yield from (part.cast(wanted) for part in cut_batch(batch.select(columns)))
    except (OSError, pa.ArrowException) as err:
        raise RunDirectoryError(
            piece.path, "a Parquet file that can be read", _reason(err), "restore it from a copy, or try again"
        ) from None


def write_in_workers(frame: DataFrame, folder: str, parted_by: str | None = None) -> list[str]:
    """Write a frame as Parquet files, each task its own with names that no other attempt at the task has.

    Args:
        parted_by: a column by whose values the files are in folders of their own, named as Spark names them.

    Returns:
        The paths of the files of the tasks that count. What other attempts at them wrote is not among them.
    """
    kept = StructType([field for field in frame.schema if field.name != parted_by])
    note = kept.json()
    reported = [
        str(row.path) for row in map_in_batches(frame, _writing(folder, parted_by, note), "path string").collect()
    ]
    if not reported and parted_by is None:  # as Spark does, so that the columns are known
        with _told(folder):
            reported = [_Sink(folder, arrow_schema(kept), note).close()]
    return sorted(reported)


def _writing(folder: str, parted_by: str | None, note: str) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """For ``mapInArrow``: write the rows of a task, and give the paths of its files in the column ``path``.

    Args:
        note: the columns of the rows as Spark's types, as JSON.
    """

    def write(batches: Batches) -> Iterator[pa.RecordBatch]:
        sinks: dict[Any, _Sink] = {}
        for batch in batches:
            with _told(folder):
                for value, rows in _by_value(batch, parted_by):
                    if value not in sinks:
                        below = folder if parted_by is None else f"{folder}/{parted_by}={value}"
                        sinks[value] = _Sink(below, rows.schema, note)
                    sinks[value].take(rows)
        with _told(folder):
            paths = [sink.close() for sink in sinks.values()]
        yield pa.RecordBatch.from_arrays([pa.array(paths, pa.string())], names=["path"])

    return write


@contextmanager
def _told(folder: str) -> Iterator[None]:
    try:
        yield
    except OSError as err:
        raise RunDirectoryError.saying(
            folder, f"a file cannot be written ({_reason(err)})", "mend that, and try again"
        ) from None


def _reason(err: Exception) -> str:
    return str(getattr(err, "strerror", None) or str(err).partition("\n")[0][:200] or type(err).__name__)


def _by_value(batch: pa.RecordBatch, parted_by: str | None) -> Iterator[tuple[Any, pa.RecordBatch]]:
    if parted_by is None:
        yield None, batch
        return
    values = batch.column(parted_by)
    names = [name for name in batch.schema.names if name != parted_by]
    for value in values.unique():
        yield value.as_py(), batch.select(names).filter(pc.equal(values, value))


class _Sink:
    def __init__(self, folder: str, schema: pa.Schema, note: str) -> None:
        task = TaskContext.get()
        # In the order of the partitions, so that a result that is put together of files is the same again.
        self.path = f"{folder}/part-{task.partitionId() if task else 0:05d}-{secrets.token_hex(12)}.parquet"
        fs, file = open_location(self.path)
        schema = all_nullable(schema)
        if not is_object(self.path):
            fs.makedirs(file.rpartition("/")[0], exist_ok=True)
        self._out = fs.open(file, "wb")
        self._writer = pq.ParquetWriter(
            self._out, schema, compression="zstd", write_page_checksum=True, store_decimal_as_integer=True
        )
        self._writer.add_key_value_metadata({SCHEMA_NOTE: note.encode()})
        self._schema, self._waiting, self._bytes = schema, list[pa.RecordBatch](), 0

    def take(self, rows: pa.RecordBatch) -> None:
        self._waiting.append(rows)
        self._bytes += rows.nbytes
        if self._bytes >= _GROUP_BYTES:
            self._flush()

    def close(self) -> str:
        self._flush()
        self._writer.close()
        self._out.close()
        return self.path

    def _flush(self) -> None:
        if self._waiting:
            rows = pa.Table.from_batches(self._waiting).cast(self._schema)
            # One batch may have all states of a task: readers of a key and tasks of the merge take a group each.
            groups = -(-rows.nbytes // (2 * _GROUP_BYTES))
            self._writer.write_table(rows, row_group_size=max(1, -(-len(rows) // max(1, groups))))
        self._waiting, self._bytes = [], 0
