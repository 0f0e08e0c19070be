"""Reads with pyarrow, in Spark's Python workers, what Spark does not read: row groups, and some files of tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skewless.documents.job import Source, Unit
from skewless.errors import InputError
from skewless.routing.hashing import pack_origin
from skewless.run.objects.location import open_location
from skewless_lake.formats import first_line
from skewless_spark.session.session import BATCH_ROWS, cut_batch
from skewless_spark.sources.cutting import rows_at_a_time
from skewless_spark.sources.formats.column_types import arrow_type_of, cast_text
from skewless_spark.sources.formats.input_files import open_file
from skewless_spark.sources.formats.parquet import as_spark_reads, int96_columns, old_columns, open_parquet
from skewless_spark.sources.lake.snapshot import Positions, Vectors, deleted_of_unit
from skewless_spark.sources.uris import FILE_COLUMNS, file_value

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
    """A column that is not in the file: from its path, or about the file itself."""
    if name in FILE_COLUMNS:
        value = file_value(name, unit.path)
        return pa.array(rows + unit.first_row) if value is None else pa.repeat(pa.scalar(value, pa.string()), len(rows))
    return pa.repeat(partition_value(unit, source, name), len(rows))


def partition_value(unit: Unit, source: Source, name: str) -> pa.Scalar:
    """The value of a partition column, typed."""
    return cast_text(pa.array([unit.values[name]], pa.string()), source.partition_columns[name])[0]


def read_unit(unit: Unit, source: Source, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The named columns of a unit, in the types of the source. Without a name, any column shows the number of rows.

    Rows that a table has deleted are among them, so that each row is at its place.

    Raises:
        InputError: the file has changed or does not fit its declaration; the error names the place.
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
    """The rows of a file that was written before any of the columns was added."""
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
    """A column that a file does not have: the value that partitions the table, else null."""
    return pa.repeat(cast_text(pa.array([unit.values.get(name)], pa.string()), source.columns[name])[0], rows)


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
