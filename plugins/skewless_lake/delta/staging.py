"""Writes the files of a result below a Delta table, whose log does not name them until they are published."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from urllib.parse import quote

import pyarrow as pa

from skewless.run.objects.location import plain_path
from skewless_lake.columns import ResultFile
from skewless_lake.delta.allowed import rules_of
from skewless_lake.delta.statistics import of_footer
from skewless_lake.delta.tables import ready_table
from skewless_lake.new_files import created, write_all, write_rows
from skewless_lake.staged import OutputPart, StagedFile, StagedResult


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
    location = plain_path(str(table.table_uri)).rstrip("/")
    parts = target.values
    known = pa.schema(table.schema().to_arrow())
    kind = pa.schema([field for field in known if field.name not in parts])
    filled = [file for file in files if file.rows]
    folder, token = "/".join(f"{name}={value}" for name, value in parts.items()), uuid.uuid4()
    paths = [f"{folder}/part-{number:05d}-{token}.parquet" for number in range(len(filled))]
    begin([quoted(path) for path in paths])

    def one(place: str, file: ResultFile) -> StagedFile:
        with created(place) as stream:
            footer = write_rows(stream, file, kind, {}, "zstd")
            size = stream.tell()
        path = quoted(place.removeprefix(f"{location}/"))
        return StagedFile(path=path, rows=file.rows, size_bytes=size, statistics=of_footer(footer))

    written = write_all([f"{location}/{path}" for path in paths], filled, one)
    return StagedResult(table=target.path, location=location, files=tuple(written), rules=rules_of(table))


def quoted(path: str) -> str:
    """A path below a table as its log has it."""
    return quote(path, safe="/=-._")
