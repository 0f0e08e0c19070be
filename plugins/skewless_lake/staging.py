"""A committed result as data files of a table: on the disk, or in the bucket, before the commit that names them."""

import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from skewless.errors import LedgerError, SpecError
from skewless.run.directory import RunDirectory
from skewless.run.folder import make_folder, open_location, plain_path, sync_file, sync_folder
from skewless_lake.formats import fitting_table, ready_table, table_format, told_plainly
from skewless_lake.staged_files import BEGUN, HOUR_COLUMN, OutputPart, StagedFile, StagedResult, TableFiles, TableRule

_BATCH_ROWS = 1 << 16
_GATHERED = 1 << 20
_THREADS = 8


class ResultFile(NamedTuple):
    """One file of a committed result; ``batches`` reads it, in batches of the result's schema."""

    rows: int
    batches: Callable[[], Iterator[pa.RecordBatch]]


def table_rules(target: OutputPart) -> tuple[tuple[TableRule, ...], list[str]]:
    """What the table of an output asks of each row, and the names of its columns; nothing if it is not made yet."""
    tables = table_format(target.output)
    with told_plainly(target.path):
        table = fitting_table(tables, target)
        return ((), []) if table is None else (tables.rules_of(table), tables.column_names(table))


def stage_result(run: RunDirectory, columns: pa.Schema, files: Sequence[ResultFile], part: OutputPart) -> StagedResult:
    """Write a result that was found good into new files of the output's table, so that no reader of it sees them yet.

    Files without rows are left out, as readers pass over them.
    """

    def begin(paths: Sequence[str]) -> None:
        """Note what is about to be written: a prune removes it if it is never published."""
        run.write_once(f"{BEGUN}/{uuid.uuid4()}.json", TableFiles(paths=tuple(paths), table=part.path))

    with told_plainly(part.path):
        tables = table_format(part.output)
        table = ready_table(tables, part, all_nullable(columns))
        return tables.stage(table, part, [file for file in files if file.rows], begin)


def batches_of(parquet: pq.ParquetFile) -> Iterator[pa.RecordBatch]:
    """The rows of a file, batch by batch. Threads of Arrow's help only where there is more than one batch."""
    yield from parquet.iter_batches(_BATCH_ROWS, use_threads=parquet.metadata.num_rows > _BATCH_ROWS)


def part_fields(target: OutputPart) -> list[pa.Field]:
    """The columns of ``OutputPart.values``."""
    fields = [pa.field(target.output.partition, pa.date32())]
    return fields if target.part.hour is None else [*fields, pa.field(HOUR_COLUMN, pa.string())]


def other_partitions(at: str, target: OutputPart, shown: Sequence[str]) -> SpecError:
    """A table has other partitions than ``part_fields``."""
    return SpecError(
        at, f"a table partitioned by {' and '.join(target.values)}",
        f"one partitioned by {', '.join(shown) or 'no column'}",
        "name its date column in output.partition, or publish into a table of its own",
    )  # fmt: skip


def require_columns(
    at: str, target: OutputPart, have: Mapping[str, Any], required: Collection[str], want: Mapping[str, Any]
) -> list[str]:
    """Hold the columns of a table to those of a result; both are types by name.

    Returns:
        Those that the table lacks or has in another type: with ``output.schema: evolve``; else there are none.
    """
    evolve = target.output.columns == "evolve"
    lacking = next((name for name in have if name not in want and (name in required or not evolve)), None)
    if lacking is not None:
        hint = "" if evolve else ", or set output.schema: evolve, which leaves columns null that a result lacks"
        raise SpecError(at, f"a result with its column {lacking!r}", "one without", f"add it{hint}")
    odd = [name for name, kind in want.items() if name not in have or have[name] != kind]
    if odd and not evolve:
        raise SpecError(
            at, f"a column {odd[0]!r} of type {want[odd[0]]}, as in the result", str(have.get(odd[0], "none")),
            "set output.schema: evolve, or publish into a table of its own",
        )  # fmt: skip
    return odd


def all_nullable(columns: pa.Schema) -> pa.Schema:
    """Columns of which everything may be null, fields of structs and items of lists too; only keys of maps may not.

    Whether Spark takes a field for nullable depends on the engine that computed it. A table is to have one type,
    whichever engine computes a day. A struct that is null has null fields in Arrow, also those that are never null in a
    struct that is there.
    """
    return pa.schema([_nullable(column) for column in columns])


def _nullable(field: pa.Field) -> pa.Field:
    kind = field.type
    if pa.types.is_struct(kind):
        kind = pa.struct([_nullable(one) for one in kind])
    elif pa.types.is_map(kind):
        key = _nullable(kind.key_field).with_nullable(False)  # Arrow's own
        kind = pa.map_(key, _nullable(kind.item_field))
    elif pa.types.is_list(kind):
        kind = pa.list_(_nullable(kind.value_field))
    return pa.field(field.name, kind, nullable=True)


def fitted(batch: pa.RecordBatch, kind: pa.Schema, parts: Mapping[str, Any]) -> pa.Table:
    """The rows of a batch of a result with just the columns of a table's files; those that the result lacks are null.

    The columns that name the part have the values of ``parts`` in every row.
    """
    return pa.Table.from_arrays(list(_columns(batch, kind, parts)), schema=kind)


def short_texts(field: pa.Field) -> pa.Field:
    """A column whose texts are addressed by 32 bits, as those of a batch of ours: pyiceberg takes them for large ones.

    In a file both are the same.
    """
    short = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}
    return field.with_type(short.get(field.type, field.type))


def _columns(batch: pa.RecordBatch, kind: pa.Schema, parts: Mapping[str, Any]) -> Iterator[pa.Array]:
    places = {name: place for place, name in enumerate(batch.schema.names)}
    for field in kind:
        if field.name in parts:
            yield pa.repeat(pa.scalar(parts[field.name], field.type), len(batch))
        elif field.name in places:
            column = batch.column(places[field.name])
            if column.null_count and not field.nullable:
                raise SpecError(
                    f"column {field.name!r} of the output's table", "a value in each row, as the table requires",
                    f"nulls in {column.null_count:,} of {len(column):,} rows",
                    "leave such rows out in map.where, or drop NOT NULL from the column",
                )  # fmt: skip
            yield column if column.type == field.type else column.cast(field.type)
        else:
            yield pa.nulls(len(batch), field.type)


def write_all(
    paths: Sequence[str], files: Sequence[ResultFile], write: Callable[[str, ResultFile], StagedFile]
) -> tuple[StagedFile, ...]:
    """Write new files, several at a time, and have them on the disk: on an object store they are once written.

    Local files are synced once all of them are written: a thread that syncs a file as soon as it is written waits for
    the disk, and the journal of the file system is written for each one.

    Returns:
        What ``write`` says of each file, which it opens by ``create_file``.
    """
    local = [place for place in map(_local, paths) if place is not None]
    folders = {path.parent for path in local}
    for folder in folders:
        make_folder(folder)
    with ThreadPoolExecutor(max_workers=_THREADS) as pool:
        written = tuple(pool.map(write, paths, files))
        list(pool.map(sync_file, local))
    for folder in folders:
        sync_folder(folder)
    return written


@contextmanager
def create_file(path: str) -> Iterator[pa.NativeFile]:
    """A file that is not there yet, in a folder that is there, open for writing.

    Nobody is asked whether it is there, as its name was drawn: on an object store that costs more than to write it.
    """
    local = _local(path)
    if local is not None:
        opening = local.open("xb")
    else:
        fs, there = open_location(path)
        opening = fs.open(there, "wb")
    # Only one thread at a time can call Python's own files, and a Parquet file is written in dozens of small pieces.
    with opening as opened:
        gathered = pa.output_stream(opened, compression=None, buffer_size=_GATHERED)
        try:
            yield gathered
        finally:
            gathered.flush()  # and not closed: after an error ``opened`` is to be given up


def _local(path: str) -> Path | None:
    plain = plain_path(path)
    return None if "://" in plain else Path(plain)


def write_rows(stream: Any, file: ResultFile, kind: pa.Schema, parts: Mapping[str, Any], codec: str) -> pq.FileMetaData:
    """Write a result file as Parquet, see ``fitted``: decimals as integers where they fit, and pages with checksums.

    Returns:
        The footer.
    """
    rows, footers = 0, list[pq.FileMetaData]()
    with pq.ParquetWriter(
        stream, kind, compression=codec, store_decimal_as_integer=True, write_page_checksum=True,
        metadata_collector=footers,
    ) as writer:  # fmt: skip
        for batch in file.batches():
            writer.write_table(fitted(batch, kind, parts))
            rows += len(batch)
    if rows != file.rows:
        raise LedgerError("staged result", f"{file.rows:,} rows of a file", f"{rows:,}", "nothing was committed")
    return footers[0]
