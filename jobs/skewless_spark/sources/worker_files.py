"""Files that Spark's Python workers read and write themselves, with pyarrow."""

import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from skewless.documents.job import Source, Unit
from skewless.errors import InputError, RunDirectoryError, first_line
from skewless.routing.hashing import pack_origin
from skewless.run.folder import is_object, open_location
from skewless_lake.staging import all_nullable
from skewless_spark.session.session import BATCH_ROWS, cut_batch, map_in_batches
from skewless_spark.session.versions import arrow_schema
from skewless_spark.sources.cutting import rows_at_a_time
from skewless_spark.sources.formats.column_types import arrow_type_of, cast_text
from skewless_spark.sources.formats.input_files import FILE_COLUMNS, file_value, open_file
from skewless_spark.sources.formats.parquet import as_spark_reads, int96_columns, old_columns, open_parquet
from skewless_spark.sources.lake.snapshot import Positions, Vectors, deleted_of_unit

Batches = Iterable[pa.RecordBatch]


def read_parts(
    parts: Sequence[Sequence[tuple[int, Unit]]],
    source: Source,
    columns: Sequence[str],
    origin: str,
    vectors: Vectors | None = None,
) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """For ``mapInArrow`` over numbers: each number stands for some units, whose rows are returned.

    Args:
        parts: for each number its units, with their ordinals.
        columns: the columns in order: of the files, of their paths, or of ``FILE_COLUMNS``.
        origin: the name of the last column, with source partition and offset of the row.
    """
    inside = [name for name in columns if name not in source.partition_columns and name not in FILE_COLUMNS]

    def of_part(batches: Batches) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for ordinal, unit in parts[number]:
                    deleted = deleted_of_unit(unit, vectors or {}) if unit.deletes else None
                    yield from _located(ordinal, unit, source, columns, inside, origin, deleted)

    return of_part


def _located(
    ordinal: int,
    unit: Unit,
    source: Source,
    columns: Sequence[str],
    inside: Sequence[str],
    origin: str,
    deleted: Positions | None,
) -> Iterator[pa.RecordBatch]:
    offset, given_rows = 0, 0
    for whole in read_unit(unit, source, inside):
        if not whole.num_rows:
            continue
        batch, rows = whole, np.arange(offset, offset + whole.num_rows, dtype=np.int64)
        offset += whole.num_rows
        if deleted is not None:
            # A row keeps its place in the file, whatever was deleted before it.
            first, last = np.searchsorted(deleted, [rows[0], rows[-1] + 1])
            kept = ~np.isin(rows, deleted[first:last])
            batch, rows = whole.filter(pa.array(kept)), rows[kept]
        given_rows += len(rows)
        given = {name: _given(name, unit, source, rows) for name in columns if name not in inside}
        arrays = [given[name] if name in given else batch.column(name) for name in columns]
        origins = pa.array(rows + pack_origin(ordinal, 0))
        yield pa.RecordBatch.from_arrays([*arrays, origins], names=[*(f"s{n}" for n in range(len(columns))), origin])
    if unit.counted and given_rows != unit.rows:
        listed = "as its footer and its deletes list" if unit.deletes else "as its footer lists"
        raise InputError(
            f"input file {unit.path}", f"{unit.rows:,} rows {listed}", f"{given_rows:,}", "nothing was committed"
        )


def _given(name: str, unit: Unit, source: Source, rows: np.ndarray) -> pa.Array:
    if name in FILE_COLUMNS:
        value = file_value(name, unit.path)
        return pa.array(rows + unit.first_row) if value is None else pa.repeat(pa.scalar(value, pa.string()), len(rows))
    return pa.repeat(partition_value(unit, source, name), len(rows))


def partition_value(unit: Unit, source: Source, name: str) -> pa.Scalar:
    """The value of a partition column, typed."""
    return cast_text(unit.values[name], source.partition_columns[name])


def read_unit(unit: Unit, source: Source, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The named columns of a unit, in the types of the source. Without a name, any column shows the number of rows.

    Rows that a table has deleted are among them, so that each row is at its place.
    """
    asked = list(columns) or list(source.columns)[:1]  # a reader that is asked for no column returns no rows
    with readable(unit, source):
        yield from _text(unit) if source.format == "text" else _parquet(unit, source, asked)


@contextmanager
def readable(unit: Unit, source: Source) -> Iterator[None]:
    """What hinders pyarrow from reading a unit, in a sentence; an ``InputError`` if the file is damaged, or is gone."""
    try:
        yield
    except FileNotFoundError:
        if source.pinned is None:
            raise
        raise InputError(
            f"input file {unit.path}", f"a file of {source.pinned}", "none",
            "nothing was committed; the snapshot has expired or was removed, so start a new run",
        ) from None  # fmt: skip
    except (pa.ArrowException, OSError) as err:
        raise InputError(
            f"input file {unit.path}", f"readable {source.format}", first_line(err), "nothing was committed"
        ) from None


def _parquet(unit: Unit, source: Source, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    fs, file = open_location(unit.path)
    with fs.open(file, "rb") as opened:
        # The needed parts of a row group are fetched together, in few pieces, and nothing else is read.
        read = open_parquet(opened, pre_buffer=True)
        groups = list(range(*unit.span)) if unit.span else None
        inner = {name: unit.inner.get(name, name) for name in columns}
        asked = [name for name in inner.values() if name is not None]
        if not asked:
            yield from _rows_without_columns(read, unit, source, columns)
            return
        rows, old, int96 = rows_at_a_time(read.metadata, groups, asked), old_columns(read), int96_columns(read)
        for whole in read.iter_batches(rows, row_groups=groups, columns=asked, use_threads=False):
            for part in cut_batch(whole):  # before casts, since Arrow's large texts have no limit and others have one
                batch = as_spark_reads(part, old, int96, unit.path)
                yield as_declared(_as_table(batch, unit, source, inner) if unit.inner else batch, source, columns)


def _rows_without_columns(read: Any, unit: Unit, source: Source, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    groups = range(*unit.span) if unit.span else range(read.num_row_groups)
    rows = sum(read.metadata.row_group(group).num_rows for group in groups)
    for start in range(0, rows, BATCH_ROWS):
        number = min(BATCH_ROWS, rows - start)
        arrays = [_of_metadata(name, unit, source, number) for name in columns]
        yield pa.RecordBatch.from_arrays(arrays, names=list(columns))


def _as_table(batch: pa.RecordBatch, unit: Unit, source: Source, inner: Mapping[str, str | None]) -> pa.RecordBatch:
    """The columns of a file by their names in its table; those that it does not have by the table's metadata."""
    arrays = [
        _of_metadata(name, unit, source, batch.num_rows) if own is None else batch.column(own)
        for name, own in inner.items()
    ]
    return pa.RecordBatch.from_arrays(arrays, names=list(inner))


def _of_metadata(name: str, unit: Unit, source: Source, rows: int) -> pa.Array:
    return pa.repeat(cast_text(unit.values.get(name), source.columns[name]), rows)


def as_declared(batch: pa.RecordBatch, source: Source, columns: Sequence[str]) -> pa.RecordBatch:
    """Some columns of a file in the types of the source."""
    arrays = [_cast(batch.column(name), arrow_type_of(source.columns[name])) for name in columns]
    return pa.RecordBatch.from_arrays(arrays, names=list(columns))


def _cast(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if array.type == kind:
        return array
    if pa.types.is_timestamp(array.type) and pa.types.is_timestamp(kind):
        # Spark has microseconds: finer digits are cut off, as Spark does.
        return pc.cast(array, kind, safe=False)
    return pc.cast(array, kind)


def _text(unit: Unit) -> Iterator[pa.RecordBatch]:
    """The lines of a text whose name Spark takes for that of no data, as ``__init__.py``; their bytes are unchanged."""
    with open_file(unit.path) as opened:
        lines = opened.read().removeprefix(b"\xef\xbb\xbf").splitlines()
    for start in range(0, len(lines), BATCH_ROWS):
        some = pa.array(lines[start : start + BATCH_ROWS], pa.binary()).view(pa.string())
        yield pa.RecordBatch.from_arrays([some], names=["value"])


#: The key under which Spark records the columns of a frame in the Parquet files that it writes.
SCHEMA_NOTE = b"org.apache.spark.sql.parquet.row.metadata"
#: The bytes that a task reads, and those of a row group that it writes, in memory.
_TASK_BYTES, _GROUP_BYTES = 64 << 20, 64 << 20


class _Piece(NamedTuple):
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
