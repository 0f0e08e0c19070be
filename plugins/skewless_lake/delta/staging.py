"""Writes the files of a result below a Delta table, whose log does not name them until they are published."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq

from skewless.run.objects.location import open_location
from skewless.run.publication.exchange import make_folder, sync_file, sync_folder
from skewless_lake.columns import ResultFile, fitted
from skewless_lake.delta.tables import ready_table
from skewless_lake.staged import OutputPart, StagedFile, StagedResult

_THREADS = 8


def stage(
    target: OutputPart,
    columns: pa.Schema,
    files: Sequence[ResultFile],
    begin: Callable[[Sequence[str]], object],
) -> StagedResult:
    """Write a result into new files below the output's table, which no version of it names yet.

    Args:
        target: the part of the table.
        columns: of the result.
        files: of the result; those without rows are left out, as readers pass over them.
        begin: called with the paths of the files before any of them is written.

    Raises:
        SpecError: the table does not fit the result.
    """
    table = ready_table(target, columns)
    location = str(table.table_uri).removeprefix("file://").rstrip("/")
    parts = target.values
    known = pa.schema(table.schema().to_arrow())
    kind = pa.schema([field for field in known if field.name not in parts])
    filled = [file for file in files if file.rows]
    folder, token = "/".join(f"{name}={value}" for name, value in parts.items()), uuid.uuid4()
    paths = [f"{folder}/part-{number:05d}-{token}.parquet" for number in range(len(filled))]
    begin([quoted(path) for path in paths])

    def one(path: str, file: ResultFile) -> StagedFile:
        return _written(location, path, file, kind)

    with ThreadPoolExecutor(max_workers=_THREADS) as pool:
        written = tuple(pool.map(one, paths, filled))
    return StagedResult(table=target.path, location=location, files=written)


def _written(location: str, path: str, file: ResultFile, kind: pa.Schema) -> StagedFile:
    rows = 0
    with (
        _created(location, path) as stream,
        pq.ParquetWriter(
            stream, kind, compression="zstd", store_decimal_as_integer=True, write_page_checksum=True
        ) as writer,
    ):
        for batch in file.batches():
            writer.write_table(fitted(batch, kind, {}))
            rows += len(batch)
        writer.close()
        size = stream.tell()
    if rows != file.rows:
        raise AssertionError(f"{path}: {rows:,} rows written of {file.rows:,}")
    return StagedFile(path=quoted(path), rows=rows, size_bytes=size)


def quoted(path: str) -> str:
    """A path below a table as its log has it."""
    return quote(path, safe="/=-._")


@contextmanager
def _created(location: str, path: str) -> Iterator[Any]:
    """A new file, open for writing; a local one is on the disk when this ends."""
    if "://" not in location:
        target = Path(location, path)
        make_folder(target.parent)
        with target.open("xb") as opened:
            yield opened
        sync_file(target)
        sync_folder(target.parent)
        return
    fs, there = open_location(f"{location}/{path}")
    with fs.open(there, "wb") as opened:
        yield opened
