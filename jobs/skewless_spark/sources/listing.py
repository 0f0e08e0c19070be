"""Lists an input before a run: its files, their columns, and the units into which they are cut."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast
from urllib.parse import unquote

from pydantic import ValidationError
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from skewless.document import sentence_of
from skewless.documents.job import Source, Unit
from skewless.errors import InputError, first_line
from skewless.run.folder import as_written, inner_path, open_location
from skewless.spec.input import COMPRESSED, FileFormat, Input
from skewless_spark.session.session import build_session, session_in_jvm
from skewless_spark.session.versions import reader_options
from skewless_spark.sources import input_columns
from skewless_spark.sources.cutting import cut_groups, is_large, piece_bytes
from skewless_spark.sources.formats.column_types import UNSUPPORTED, declared_type, fields_within, type_within
from skewless_spark.sources.formats.input_files import FILE_COLUMNS, find, in_threads, is_hidden, open_input
from skewless_spark.sources.formats.parquet import Footer, footer_of
from skewless_spark.sources.formats.texts import (
    LARGEST_SAMPLE,
    LEAST_SAMPLE,
    SAMPLED_FILES,
    SAMPLED_PART,
    first_rows,
    json_types,
    names_in,
    refuse_unread,
    sample_of,
    type_text,
)
from skewless_spark.sources.identity import checksums, listed_file
from skewless_spark.sources.input_columns import ColumnsOfFiles, common_types, refuse_unknown, widest

#: The assumed compression ratio of a compressed text.
_COMPRESSION = 4.0


@dataclass(frozen=True)
class Listing:
    """The units of an input with their common columns."""

    units: tuple[Unit, ...]
    source: Source
    """How they are read, with all columns of the files, not only those that a job reads."""
    own: ColumnsOfFiles = field(default_factory=dict)
    """The columns of each file, of a format whose files tell them: by a footer or a header."""
    nulls: dict[str, int] = field(default_factory=dict)
    """Of columns that were asked for, if all files count them."""

    @property
    def types(self) -> dict[str, str]:
        """The Spark SQL type of each column that a job may name, also of fields of structs; empty without files."""
        named = {**self.source.columns, **self.source.partition_columns}
        within = {name: type_within(named, way) for name, way in fields_within(named).items()}
        return {**named, **within, **FILE_COLUMNS} if named else {}


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
    share: float | None = 0.01,
    files: Sequence[str] | None = None,
    partitions: Mapping[str, str] | None = None,
    nulls_of: Sequence[str] = (),
) -> Listing:
    """List an input. Only footers are read, and samples of texts.

    Args:
        share: the fraction of the input that the smallest wave has; None for what is in no wave.
        nulls_of: columns of Parquet whose nulls are to be counted.
    """
    fs, root = open_input(path)
    found = find(path) if files is None else sorted(files)
    paths = [as_written(fs, path, file) for file in found]
    values = input_columns.values_of(found, root)
    declared = declared_types(given)
    if partitions is None:
        partitions = input_columns.types_of(paths, values, declared)
    values = input_columns.named_as(partitions, values)
    now = list(in_threads(lambda file: listed_file(fs, file), found))
    listed = [
        ListedFile(spelled, file.path, file.size_bytes, file.version, checksum, one)
        for spelled, file, checksum, one in zip(paths, now, checksums(fs, now), values, strict=True)
    ]
    piece = piece_bytes([file.size for file in listed], share)
    own: dict[str, Mapping[str, str]] = {}
    nulls: dict[str, int] = {}
    for file in listed if given.format != "parquet" else ():
        if given.format != "orc":
            refuse_unread(file.path)
        if given.format != "text" and is_hidden(file.path.rpartition("/")[2]):
            required = "a name that Spark takes for that of data"
            raise InputError(f"input file {file.path}", required, "one with an underscore or a dot", "rename it")
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
        row_bytes = _row_bytes(listed)
        columns, units = _columns_of_texts(given, listed, declared, list(partitions)), list[Unit]()
        headers: Mapping[str, tuple[str, ...]] = {}
        if given.format == "csv" and given.header:
            options = given.reader_options
            found_names = in_threads(lambda path: names_in(path, options), paths)
            headers = {path: names for path, names in zip(paths, found_names, strict=True) if names}
            own = {path: {name: declared.get(name, "string") for name in names} for path, names in headers.items()}
            columns = common_types(own.values()) or columns
        for file in listed:
            rows = file.size / row_bytes * (_COMPRESSION if file.path.lower().endswith(COMPRESSED) else 1.0)
            counted = {"counted": False, "header": headers.get(file.path, ())}
            units.append(_unit(file, max(1, round(rows)) if file.size else 0, **counted))
    inside = {name: kind for name, kind in columns.items() if name not in partitions or given.format == "csv"}
    if given.format != "csv" or given.header:
        evolved = declared if given.missing_columns == "evolve" else {}
        refuse_unknown(declared, {**columns, **partitions, **evolved} if listed else declared, next(iter(paths), ""))
    if own or not listed:
        inside |= {name: kind for name, kind in declared.items() if name not in partitions}
    source = Source(
        format=cast("FileFormat", given.format), columns=inside, partition_columns=dict(partitions),
        options=given.reader_options,
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
    """The types that a spec declares, in Spark SQL's own spelling."""
    nested = given.format in {"json", "parquet", "orc"}
    return {
        name: declared_type(kind, f"spec, columns, field {name}", nested=nested)
        for name, kind in (given.columns or {}).items()
    }


def counted_units(file: ListedFile, footer: Footer, piece: int) -> list[Unit]:
    """The units of a file with a footer: the whole file, or ranges of its row groups."""
    inner = {name: name for name in (footer.types if footer.wide else footer.foreign)}
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


# Texts have no footer: the length of a line comes from samples, columns from samples or from headers.


def _row_bytes(files: Sequence[ListedFile]) -> float:
    filled = [file for file in files if file.size]
    length = min(LARGEST_SAMPLE, max(LEAST_SAMPLE, int(sum(one.size for one in filled) * SAMPLED_PART / SAMPLED_FILES)))
    samples = [sample_of(file.path, length) for file in filled[:: -(-len(filled) // SAMPLED_FILES) or 1]]
    lines = sum(max(1, text.count(b"\n")) for text in samples)
    return max(1.0, sum(map(len, samples)) / lines) if samples else 1.0


def _columns_of_texts(
    given: Input, files: Sequence[ListedFile], types: Mapping[str, str], partitions: Sequence[str]
) -> dict[str, str]:
    if given.format == "text":
        return {"value": "string"} if files else {}
    declared = {name: kind for name, kind in types.items() if name not in partitions}
    filled = next((file for file in files if file.size), None)
    if filled is None:
        return declared
    if given.format == "json":
        if declared:
            return declared
        spark = SparkSession.getActiveSession() or build_session("skewless listing")
        return json_types(spark, filled.path, sample_of(filled.path, 1 << 18), given.reader_options)
    # The names of folders are among the columns of a file without a header if it has so many fields.
    alike = not given.header and [*map(len, first_rows(filled.path, given.reader_options)[:1])] == [len(types)]
    return dict(types) if alike else declared


_FORMATS = ("parquet", "orc", "csv", "json", "text")
#: Options of a table that do not change how its files are read.
_HARMLESS = frozenset({"path", "serialization.format", "compression"})
#: Parts of types whose rules files do not have: Spark pads CHAR, and compares by a collation.
_NOT_IN_FILES = re.compile(r"(?<!var)char\(\d+\)|string collate \w+")
#: In the metadata of a column of Spark's: its type as it was declared, if that is a CHAR or a VARCHAR.
_AS_DECLARED = "__CHAR_VARCHAR_TYPE_STRING"

_DECLARE = "declare it as a STRING, or read the files by path"


def list_table(spark: SparkSession, given: Input, share: float | None) -> tuple[str, Listing]:
    """List a table; an ``InputError`` if the table does not exist, or its files cannot be read here."""
    name = given.path
    at = f"input {name}"
    try:
        table = spark.table(name)
        told = {row["col_name"]: row["data_type"] for row in spark.sql(f"DESCRIBE TABLE EXTENDED {name}").collect()}
        partitions = [column.name for column in spark.catalog.listColumns(name) if column.isPartition]
    except AnalysisException as err:
        raise InputError(at, "a table that Spark knows", first_line(err), "check the name") from None
    provider = str(told.get("Provider", "")).lower()
    if str(told.get("Type", "")) == "VIEW" or provider not in _FORMATS:
        came = (
            "a view" if told.get("Type") == "VIEW" or not provider else f"one of the provider {provider or 'unknown'!r}"
        )
        raise InputError(
            at, f"a table of files: {', '.join(_FORMATS)}", came, "write it out, or read its files by path"
        )
    # A schema has a CHAR as a string, with a note of what it is.
    kinds = [(field.name, field.metadata.get(_AS_DECLARED, type_text(field.dataType))) for field in table.schema]
    told_types = {name: kind for name, kind in kinds if _NOT_IN_FILES.search(kind)}
    declared = {field.name: _NOT_IN_FILES.sub("string", type_text(field.dataType)) for field in table.schema}
    if told_types and provider in {"csv", "json"}:  # which are read whole
        column, kind = next(iter(told_types.items()))
        raise InputError(at, "columns whose values are those of its files", f"{column!r} of type {kind}", _DECLARE)
    inside = {column: kind for column, kind in declared.items() if column not in partitions}
    location, files = _files(str(told["Location"]), table.inputFiles())
    options = {key.lower(): value for key, value in reader_options(spark, name, session_in_jvm(spark)).items()}
    as_files = _as_files(provider, location, inside, options, at)
    listing = list_input(as_files, location, share, files, {one: declared[one] for one in partitions})
    other = next((list(unit.values) for unit in listing.units if list(unit.values) != partitions), None)
    if other is not None:
        raise InputError(at, f"folders named after {partitions}", str(other), "read it by path")
    odd = next((names for names in listing.own.values() if provider == "csv" and list(names) != list(inside)), None)
    if odd is not None:  # Spark passes over headers, and reads columns by their places
        raise InputError(at, f"headers of the columns {list(inside)}", str(list(odd))[:300], "read its files by path")
    refused = {one: f"{UNSUPPORTED}{kind}, whose rules files do not have" for one, kind in told_types.items()}
    columns = {one: _column(one, kind, listing.source.columns.get(one, kind), at) for one, kind in inside.items()}
    of_folders = listing.source.partition_columns
    kept = {
        "columns": {one: refused.get(one, kind) for one, kind in columns.items()},
        "partition_columns": {one: refused.get(one, kind) for one, kind in of_folders.items()},
    }
    return location, replace(listing, source=listing.source.model_copy(update=kept))


def _column(name: str, kind: str, own: str, at: str) -> str:
    """The type of a column of a table. Files may have a narrower one, or none: null, as in Spark."""
    if own.startswith(UNSUPPORTED):
        return own
    if widest(own, kind) != kind:
        raise InputError(at, f"files with {name!r} of type {kind}", own, "rewrite the table")
    return kind


def _files(location: str, paths: list[str]) -> tuple[str, list[str]]:
    place = unquote(location)
    fs, root = open_location(place)
    found = [inner_path(fs, unquote(path)) for path in paths]
    return as_written(fs, place, root.rstrip("/")), found


def _as_files(provider: str, location: str, columns: Mapping[str, str], options: Mapping[str, str], at: str) -> Input:
    raw: dict[str, Any] = {"path": location, "format": provider}
    if provider in {"csv", "json"}:
        raw["columns"] = dict(columns)
    if provider == "text" and list(columns) != ["value"]:
        raise InputError(at, "a text table with the column 'value'", str(list(columns)))
    own = {name: value for name, value in options.items() if name not in _HARMLESS}
    # What a table does not say is as Spark has it.
    spark = {"header": "false", "escape": "\\", "nullValue": ""} if provider == "csv" else {}
    if own or spark:
        raw["options"] = {**spark, **own}
    try:
        return Input.model_validate(raw)
    except ValidationError as err:
        raise sentence_of(err, Input, at, InputError) from None
