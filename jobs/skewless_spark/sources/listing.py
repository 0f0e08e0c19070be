"""Lists an input before a run: its files, their columns, and the units into which they are cut."""

from __future__ import annotations

import csv
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

from skewless.documents.job import Source, Unit
from skewless.errors import InputError
from skewless.run.objects.location import as_written
from skewless.spec.input import FileFormat, Input
from skewless_spark.sources import partition_columns
from skewless_spark.sources.cutting import cut_bytes_evenly, cut_groups, is_large, piece_bytes
from skewless_spark.sources.formats import json_lines
from skewless_spark.sources.formats.delimited import names_in
from skewless_spark.sources.formats.files import COMPRESSED, find, in_threads, open_file, open_input
from skewless_spark.sources.formats.footers import footer_of
from skewless_spark.sources.formats.lines import Block
from skewless_spark.sources.formats.parquet import Footer
from skewless_spark.sources.formats.spark_types import declared_type
from skewless_spark.sources.identity import checksums, listed_file
from skewless_spark.sources.schemas import ColumnsOfFiles, common_types, refuse_unknown
from skewless_spark.sources.uris import FILE_COLUMNS

#: The number of files that are sampled for the length of a line, and the bytes of each sample, at most 5 % of a large
#: input.
SAMPLED_FILES, LEAST_SAMPLE, LARGEST_SAMPLE = 8, 16 << 10, 256 << 10
_SAMPLED_PART = 0.05
#: The assumed compression ratio of a compressed text.
_COMPRESSION = 4.0


@dataclass(frozen=True)
class Listing:
    """The units of an input with their common columns.

    Attributes:
        source: how they are read, with all columns of the files, not only those that a job reads.
        own: the columns of each file, of a format whose files tell them: by a footer or a header.
        nulls: of columns that were asked for, if all files count them.
    """

    units: tuple[Unit, ...]
    source: Source
    own: ColumnsOfFiles = field(default_factory=dict)
    nulls: dict[str, int] = field(default_factory=dict)

    @property
    def types(self) -> dict[str, str]:
        """The Spark SQL type of each column that a job may name; empty for an input without files."""
        named = {**self.source.columns, **self.source.partition_columns}
        return {**named, **FILE_COLUMNS} if named else {}


@dataclass(frozen=True)
class ListedFile:
    """A file with two paths: as a user would write it, and as its file system has it."""

    path: str
    inner: str
    size: int
    version: str
    checksum: str
    values: dict[str, str | None]


def list_input(
    given: Input,
    path: str,
    share: float = 0.01,
    files: Sequence[str] | None = None,
    partitions: Mapping[str, str] | None = None,
    nulls_of: Sequence[str] = (),
) -> Listing:
    """List an input. Only footers are read, and samples of texts.

    Args:
        share: the fraction of the input that the smallest wave has.
        nulls_of: columns of Parquet whose nulls are to be counted.

    Raises:
        InputError: there is nothing at the path, a file has another format, or a folder's value not the type that is
            declared.
        SpecError: a declared type is none.
    """
    fs, root = open_input(path)
    found = find(path) if files is None else sorted(files)
    paths = [as_written(fs, path, file) for file in found]
    values = partition_columns.values_of(found, root)
    declared = declared_types(given)
    if partitions is None:
        partitions = partition_columns.types_of(paths, values, declared)
    now = list(in_threads(lambda file: listed_file(fs, file), found))
    listed = [
        ListedFile(spelled, file.path, file.size_bytes, file.version, checksum, one)
        for spelled, file, checksum, one in zip(paths, now, checksums(fs, now), values, strict=True)
    ]
    piece = piece_bytes([file.size for file in listed], share)
    own: dict[str, Mapping[str, str]] = {}
    nulls: dict[str, int] = {}
    if given.format in {"parquet", "orc"}:
        footers = list(
            in_threads(lambda file: footer_of(fs, file.inner, given.format, file.path, nulls=bool(nulls_of)), listed)
        )
        nulls = added_up(
            nulls_of,
            [
                [nulls_in(footer, one if one in footer.types.keys() - partitions else None, file.values.get(one))
                 for one in nulls_of]
                for file, footer in zip(listed, footers, strict=True)
            ],
        )  # fmt: skip
        own = {path: footer.types for path, footer in zip(paths, footers, strict=True)}
        columns = common_types(own.values())
        units = [unit for one in zip(listed, footers, strict=True) for unit in counted_units(*one, piece)]
    else:
        columns, row_bytes = _sampled(given, listed, declared, partitions)
        if given.format == "csv" and given.header:
            own = _of_headers(given, listed, declared)
            columns = common_types(own.values()) or columns
        units = [unit for file in listed for unit in _estimated(file, row_bytes, piece)]
    inside = {name: kind for name, kind in columns.items() if name not in partitions or given.format == "csv"}
    if given.format != "csv" or given.header:
        evolved = declared if given.missing_columns == "evolve" else {}
        refuse_unknown(declared, {**columns, **partitions, **evolved} if listed else declared, next(iter(paths), ""))
    if own or not listed:
        inside |= {name: kind for name, kind in declared.items() if name not in partitions}
    source = Source(
        format=cast("FileFormat", given.format), columns=inside, partition_columns=dict(partitions),
        header=given.header, delimiter=given.delimiter,
    )  # fmt: skip
    return Listing(tuple(units), source, own, nulls)


def nulls_in(footer: Footer, name: str | None, value: str | None = None) -> int | None:
    """How many values of a column are null in a file; None if that is not counted.

    Args:
        name: of the column in the file; None if it is not there, and all rows have the value.
    """
    return footer.nulls.get(name) if name is not None else footer.rows * (value is None)


def added_up(names: Sequence[str], files: Sequence[Sequence[int | None]]) -> dict[str, int]:
    """By column, the sum of the counts of all files; without a column that is not counted in one of them."""
    counts = zip(*files, strict=True) if files else ((),) * len(names)
    return {name: sum(of) for name, of in zip(names, counts, strict=True) if None not in of}


def declared_types(given: Input) -> dict[str, str]:
    """The types that a spec declares, in Spark SQL's own spelling.

    Raises:
        SpecError: one of them is none that a column can have.
    """
    nested = given.format in {"json", "parquet", "orc"}
    return {
        name: declared_type(kind, f"spec, field input.columns.{name}", nested=nested)
        for name, kind in (given.columns or {}).items()
    }


def counted_units(file: ListedFile, footer: Footer, piece: int) -> list[Unit]:
    """The units of a file with a footer: the whole file, or ranges of its row groups or stripes."""
    inner = {name: name for name in footer.foreign}
    rows = [count for count, _ in footer.pieces]
    if sum(rows) != footer.rows or footer.whole:
        return [_unit(file, footer.rows, inner=inner)]
    large = is_large(file.size, piece)
    spans = cut_groups(footer.pieces, file.size, piece) if large else [(0, len(rows))]
    if len(spans) < 2 and not footer.wide:
        return [_unit(file, footer.rows, inner=inner)]
    return [
        _unit(file, sum(rows[start:end]), inner=inner, span=(start, end), first_row=sum(rows[:start]))
        for start, end in spans
    ]


def _unit(file: ListedFile, rows: int, **further: Any) -> Unit:
    """A unit whole: copying one takes longer than listing a file."""
    return Unit(
        path=file.path, rows=rows, size_bytes=file.size, version=file.version, checksum=file.checksum,
        values=file.values, **further,
    )  # fmt: skip


def _estimated(file: ListedFile, row_bytes: float, piece: int) -> list[Unit]:
    """The units of a text: the whole file, or ranges of bytes. Their rows are estimated."""
    squeezed = file.path.endswith(COMPRESSED)
    cut = not squeezed and is_large(file.size, piece)
    spans = cut_bytes_evenly(file.size, piece) if cut else [None]
    rows = file.size / row_bytes * (_COMPRESSION if squeezed else 1.0) / len(spans)
    estimate = max(1, round(rows)) if file.size else 0
    return [_unit(file, estimate, counted=False, span=span) for span in spans]


# Texts have no footer: the length of a line comes from samples, columns from samples or from headers.


def _sampled(
    given: Input, files: Sequence[ListedFile], types: Mapping[str, str], partitions: Container[str]
) -> tuple[dict[str, str], float]:
    filled = [file for file in files if file.size]
    total = sum(file.size for file in filled)
    length = min(LARGEST_SAMPLE, max(LEAST_SAMPLE, int(total * _SAMPLED_PART / SAMPLED_FILES)))
    step = -(-len(filled) // SAMPLED_FILES)
    samples = [_sample(file, length) for file in filled[:: step or 1]]
    lines = sum(max(1, text.count(b"\n")) for text in samples)
    row_bytes = max(1.0, sum(map(len, samples)) / lines) if samples else 1.0
    if given.format == "text":
        return ({"value": "string"} if files else {}), row_bytes
    declared = {name: kind for name, kind in types.items() if name not in partitions}
    if not samples:
        return declared, row_bytes
    if given.format == "json":
        return declared or json_lines.infer(Block(filled[0].path, samples[0], 0, 0)), row_bytes
    line = samples[0].partition(b"\n")[0]
    if not given.header:
        fields = next(csv.reader([line.decode(errors="replace")], delimiter=given.delimiter), [])
        # The names of folders are among the columns of a file if it has so many fields.
        return (dict(types) if len(fields) == len(types) else declared), row_bytes
    return declared, row_bytes


def _of_headers(given: Input, files: Sequence[ListedFile], types: Mapping[str, str]) -> dict[str, Mapping[str, str]]:
    """The columns of each file that is not empty, in the types that the spec declares or as text."""

    def of_file(file: ListedFile) -> dict[str, str]:
        with _readable(file):
            return {name: types.get(name, "string") for name in names_in(file.path, given.delimiter)}

    found = in_threads(of_file, files)
    return {file.path: columns for file, columns in zip(files, found, strict=True) if columns}


def _sample(file: ListedFile, length: int) -> bytes:
    """The first lines of a file, about ``length`` bytes; whole lines if there is a line end."""
    with _readable(file), open_file(file.path) as opened:
        raw = opened.read(length).removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        while b"\n" not in raw and (more := opened.read(length)):
            raw += more
    return raw[: raw.rfind(b"\n") + 1] if len(raw) >= length else raw


@contextmanager
def _readable(file: ListedFile) -> Iterator[None]:
    try:
        yield
    except (OSError, EOFError, ValueError) as err:
        raise InputError(f"input file {file.path}", "a readable file", str(err)[:200], "remove or rewrite it") from None
