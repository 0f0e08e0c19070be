"""Parquet files as Spark reads them: the one way to open them, and what of a file only one of the readers reads right.

Spark's own scan and pyarrow must give equal rows, whichever of them reads a file.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from types import MappingProxyType
from typing import Any, NamedTuple

import fsspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import orc

from skewless.errors import InputError, first_line
from skewless.run.folder import for_short_reads
from skewless_spark.sources.cutting import has_wide_rows
from skewless_spark.sources.formats.column_types import UNSUPPORTED, by_name, spark_type_of
from skewless_spark.sources.formats.input_files import other_format

#: Codecs by pyarrow's names: those that Spark has without further jars, and what only pyarrow has. The old LZ4, which
#: some wrote in Hadoop's frames and some without, is ``UNKNOWN`` there; Spark wants the frames.
_SPARK_CODECS = frozenset({"UNCOMPRESSED", "SNAPPY", "GZIP", "LZ4", "ZSTD"})
_OUR_CODECS = frozenset({"BROTLI", "UNKNOWN"})
#: What Spark notes in the footers of its files.
_INT96 = "INT96"
_VERSION, _OLD_TIMES, _OLD_INT96 = (
    b"org.apache.spark.version", b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96",
)  # fmt: skip
#: Since when both calendars, and all zones in both, have equal numbers: days, and microseconds since 1970. These are
#: the last switches in Spark's own tables (``julian-gregorian-rebase-micros.json``).
_NEW_DAYS, _NEW_MICROSECONDS = -141_427, -2_208_988_800_000_000
#: The times of the years 1 to 9999, which are those of Spark's type.
_FIRST_MICROSECOND, _LAST_MICROSECOND = -62_135_596_800_000_000, 253_402_300_799_999_999


class Footer(NamedTuple):
    """What the footer of a file says, of Parquet or ORC."""

    types: dict[str, str]
    rows: int
    """The rows of the whole file: of Parquet those of its row groups, whatever else it says."""
    pieces: Sequence[tuple[int, int]]
    """``(rows, bytes)`` of each row group, in order; empty of ORC."""
    foreign: frozenset[str] = frozenset()
    """The columns that only pyarrow reads: times in nanoseconds, floats of two bytes, decimals as texts of bytes, pages
    in a codec that Spark lacks."""
    whole: bool = False
    """Whether the file must not be cut: only Spark reads it right, as dates or times may be in the calendar of before
    1582, or integers are packed as DuckDB packs them."""
    wide: bool = False
    """Whether it may have rows that are too wide for Spark's own scan."""
    nulls: Mapping[str, int] = MappingProxyType({})
    """How many values are null, of each column of single values whose row groups all count them; if asked for."""


def open_parquet(opened: Any, **options: Any) -> pq.ParquetFile:
    """A Parquet file by its open file, with the values that Spark reads: INT96 in microseconds, pages checked."""
    return pq.ParquetFile(opened, page_checksum_verification=True, coerce_int96_timestamp_unit="us", **options)


def parquet_footer(parquet: pq.ParquetFile, opened: Any, *, nulls: bool = False) -> Footer:
    """What Spark reads in a file, and what it cannot.

    Args:
        nulls: whether nulls are to be counted, by the statistics of the row groups.
    """
    types, foreign = list[tuple[str, str]](), set[str]()
    opened.seek(-8, 2)
    # Behind a signature some columns are encrypted: Arrow ends a process that asks for more than their types.
    known = int.from_bytes(opened.read(4), "little") == parquet.metadata.serialized_size
    groups = [parquet.metadata.row_group(number) for number in range(parquet.num_row_groups)]
    if known:
        _require_values(parquet.metadata)
    column = parquet.metadata.schema.column
    for field, leaves in _fields(parquet):
        kind = _spark_type(field.type, [column(leaf) for leaf in leaves])
        variant = _within(field.type, lambda one: pa.types.is_struct(one) and one.get_field_index("metadata") >= 0)
        if variant and field.name in _variants(parquet):
            kind = f"{UNSUPPORTED}variant"
        chunks = (group.column(leaf) for group in groups for leaf in (leaves if known else ()))
        codecs = {str(chunk.compression) for chunk in chunks} - _SPARK_CODECS
        if codecs - _OUR_CODECS:
            kind = f"{UNSUPPORTED}{kind.removeprefix(UNSUPPORTED)}, {min(codecs - _OUR_CODECS)}"
        odd = _within(field.type, lambda one: _in_nanoseconds(one) or pa.types.is_float16(one))
        if codecs or odd or any(_ends_spark(column(leaf)) for leaf in leaves):
            foreign.add(field.name)
        types.append((field.name, kind))
    wide = known and has_wide_rows(parquet.metadata)
    rows = sum(group.num_rows for group in groups)
    # The uncompressed bytes of the groups give the proportions; adding up compressed column chunks would take long.
    pieces = [(group.num_rows, group.total_byte_size) for group in groups]
    counted = _nulls(parquet) if nulls and known else {}
    whole = bool(old_columns(parquet) or odd_columns(parquet))
    return Footer(by_name(types), rows, pieces, frozenset(foreign), whole, wide, counted)


def _spark_type(kind: pa.DataType, leaves: Sequence[Any]) -> str:
    enums = (str(leaf.logical_type) == "Enum" for leaf in leaves)  # texts, which Arrow has as bytes
    own = _with_leaves(kind, lambda leaf: pa.string() if next(enums) else leaf)
    return spark_type_of(own, leaves[0].physical_type if leaves else "")


def _nulls(parquet: pq.ParquetFile) -> dict[str, int]:
    groups, found = [parquet.metadata.row_group(number) for number in range(parquet.num_row_groups)], {}
    for field, leaves in _fields(parquet):
        if len(leaves) == 1 and parquet.metadata.schema.column(leaves[0]).path == field.name:
            told = [group.column(leaves[0]).statistics for group in groups]
            if all(one is not None and one.has_null_count for one in told):
                found[field.name] = sum(one.null_count for one in told)
    return found


def _require_values(metadata: pq.FileMetaData) -> None:
    """Each column that is no part of an array or a map has as many values as its row group has rows, nulls included.

    Readers take the rows that a row group claims, and leave the others where they are.
    """
    flat = [leaf for leaf in range(metadata.num_columns) if not metadata.schema.column(leaf).max_repetition_level]
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        for chunk in map(group.column, flat):
            if chunk.num_values != group.num_rows:
                name = chunk.path_in_schema
                raise OSError(f"{chunk.num_values:,} values of {name!r} for {group.num_rows:,} rows of a row group")


def old_columns(parquet: pq.ParquetFile) -> dict[str, list[int]]:
    """The columns whose dates or times before 1582 are of the old calendar, by Spark's own rule, with their leaves."""
    notes = parquet.metadata.metadata or {}
    if _VERSION not in notes:
        return {}
    version = tuple(int(part) for part in notes[_VERSION].split(b".")[:2] if part.isdigit())
    of_times, of_int96 = version < (3, 0) or _OLD_TIMES in notes, version < (3, 1) or _OLD_INT96 in notes
    if not (of_times or of_int96):
        return {}
    found: dict[str, list[int]] = {}
    for field, leaves in _fields(parquet):
        for leaf in leaves:
            column = parquet.metadata.schema.column(leaf)
            if _is_converted(column) and (of_int96 if column.physical_type == _INT96 else of_times):
                found.setdefault(field.name, []).append(leaf)
    return found


def int96_columns(parquet: pq.ParquetFile) -> set[str]:
    """The columns of this type, in which a day and its nanoseconds may be any numbers."""
    kinds = [parquet.metadata.schema.column(leaf).physical_type for leaf in range(parquet.metadata.num_columns)]
    return {field.name for field, leaves in _fields(parquet) if any(kinds[leaf] == _INT96 for leaf in leaves)}


def odd_columns(parquet: pq.ParquetFile) -> set[str]:
    """The integer columns whose differences DuckDB may have packed in more than 32 bits, which pyarrow refuses."""
    if not str(parquet.metadata.created_by).startswith("DuckDB"):
        return set()
    groups = [parquet.metadata.row_group(number) for number in range(parquet.num_row_groups)]
    return {
        field.name
        for field, leaves in _fields(parquet)
        for chunk in (group.column(leaf) for leaf in leaves for group in groups)
        if chunk.physical_type == "INT32" and "DELTA_BINARY_PACKED" in chunk.encodings
    }


def _fields(parquet: pq.ParquetFile) -> Iterator[tuple[pa.Field, list[int]]]:
    leaves = iter(range(parquet.metadata.num_columns))
    for field in parquet.schema_arrow:
        yield field, list(islice(leaves, _leaves(field.type)))


def _leaves(kind: pa.DataType) -> int:
    kind = getattr(kind, "storage_type", kind)
    return sum(_leaves(kind.field(number).type) for number in range(kind.num_fields)) if kind.num_fields else 1


def _within(kind: pa.DataType, told: Any) -> bool:
    return bool(told(kind)) or any(_within(kind.field(number).type, told) for number in range(kind.num_fields))


def _in_nanoseconds(kind: pa.DataType) -> bool:
    return pa.types.is_timestamp(kind) and kind.unit == "ns"


_OF_SCHEMA = re.compile(
    r"^( +)(?:required|optional|repeated) group field_id=-?\d+ (.*?)(?: \((\w+).*\))? \{$", re.MULTILINE
)


def _variants(parquet: pq.ParquetFile) -> frozenset[str]:
    """The columns that are variants, or have one inside. Arrow names the logical type of a group in this text alone."""
    found, column = set(), ""
    for indent, name, logical_type in _OF_SCHEMA.findall(str(parquet.schema)):
        column = name if len(indent) == 2 else column
        found |= {column} if logical_type == "Variant" else set()
    return frozenset(found)


def _ends_spark(column: Any) -> bool:
    """Whether Spark ends in a NullPointerException: decimals as texts of bytes, and logical types yet to come."""
    kind = str(column.logical_type)
    return kind == "Undefined" or (kind.startswith("Decimal") and column.physical_type == "BYTE_ARRAY")


def _is_converted(column: Any) -> bool:
    """Whether Spark converts a column of the old calendar."""
    kind = str(column.logical_type)
    zoned = kind.startswith("Timestamp") and "isAdjustedToUTC=true" in kind
    return column.physical_type == _INT96 or kind == "Date" or zoned


def as_spark_reads(batch: pa.RecordBatch, old: Collection[str], int96: Collection[str], path: str) -> pa.RecordBatch:
    """A batch that pyarrow has read, with times in microseconds."""
    arrays = []
    for name, array in zip(batch.schema.names, batch.columns, strict=True):
        for leaf in _values(array) if name in old or name in int96 else ():
            if name in old:
                _require_new(leaf, path, name)
            if name in int96:
                _require_years(leaf, path, name)
        arrays.append(_in_microseconds(array, path, name) if _within(array.type, _in_nanoseconds) else array)
    return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)


def _values(array: pa.Array) -> Iterator[pa.Array]:
    kind = array.type
    if pa.types.is_struct(kind):
        for number in range(kind.num_fields):
            yield from _values(array.field(number))
    elif pa.types.is_map(kind):
        yield from _values(array.keys)
        yield from _values(array.items)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        yield from _values(array.flatten())
    else:
        yield array


def _require_years(array: pa.Array, path: str, name: str) -> None:
    """Refuse what pyarrow reads otherwise than Spark where a day has more nanoseconds than it may, or less."""
    found = pc.min_max(array.cast(pa.int64())) if pa.types.is_timestamp(array.type) else {}
    if any(one.is_valid and not _FIRST_MICROSECOND <= one.as_py() <= _LAST_MICROSECOND for one in found.values()):
        raise InputError(
            f"input file {path}", "times of the years 1 to 9999", f"others in {name!r}, of the type INT96",
            "write it anew with outputTimestampType=TIMESTAMP_MICROS",
        )  # fmt: skip


def _require_new(array: pa.Array, path: str, name: str) -> None:
    """Refuse values before the end of the old calendar: pyarrow does not convert them."""
    if pa.types.is_date32(array.type):
        begin, first, least = "dates since 1582-10-15", pc.min(array).cast(pa.int32()).as_py(), _NEW_DAYS
    elif pa.types.is_timestamp(array.type):
        begin, least = "times since 1900", _NEW_MICROSECONDS
        first = pc.min(array).cast(pa.timestamp("us", array.type.tz)).cast(pa.int64()).as_py()
    else:
        return
    if first is not None and first < least:
        raise InputError(
            f"input file {path}", f"{begin}, as it is in the calendar of before 1582, which only Spark converts",
            f"earlier ones in {name!r}", "write it anew with datetimeRebaseModeInWrite=CORRECTED",
        )  # fmt: skip


def _in_microseconds(array: pa.Array, path: str, name: str) -> pa.Array:
    try:
        return array.cast(_with_leaves(array.type, lambda t: pa.timestamp("us", t.tz) if _in_nanoseconds(t) else t))
    except pa.ArrowInvalid:
        raise InputError(
            f"input file {path}", "times of whole microseconds, as Spark holds them", f"nanoseconds in {name!r}",
            "round them where they are written, or leave the column out",
        ) from None  # fmt: skip


def _with_leaves(kind: pa.DataType, changed: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """A type with each of its innermost types changed, in their order."""
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(_with_leaves(kind.value_type, changed))
    if pa.types.is_struct(kind):
        fields = (kind.field(at) for at in range(kind.num_fields))
        return pa.struct([(one.name, _with_leaves(one.type, changed)) for one in fields])
    if pa.types.is_map(kind):
        return pa.map_(_with_leaves(kind.key_type, changed), _with_leaves(kind.item_type, changed))
    return changed(kind)


#: The key of a field id in the metadata of an Arrow field.
_FIELD_ID = b"PARQUET:field_id"


def footer_of(fs: fsspec.AbstractFileSystem, file: str, kind: str, path: str, *, nulls: bool = False) -> Footer:
    """Read a footer, and of Parquet the counts of nulls if wanted; an ``InputError`` if it has another format."""
    name = {"parquet": "Parquet", "orc": "ORC"}[kind]
    try:
        if kind == "orc":
            return _orc(fs, file)
        with for_short_reads(fs, file) as opened:
            return parquet_footer(open_parquet(opened), opened, nulls=nulls)
    except (pa.ArrowException, OSError, KeyError, IndexError) as err:
        reason = first_line(err)
        hint = "remove or rewrite it"
        with suppress(OSError), for_short_reads(fs, file) as opened:
            if foreign := other_format(opened.read(64), kind):
                hint = f"it is {foreign[0]}: {foreign[1]}, or leave it out by a glob in path, as *.{kind}"
        raise InputError(f"input file {path}", f"a readable {name} file", reason, hint) from None


class FieldIds(NamedTuple):
    """The field ids in a file."""

    columns: dict[int, str]
    """The name of the column that has each."""
    inside: dict[str, tuple[int | None, ...]]
    """Of each column, see ``ids_within``."""


def ids_within(kind: pa.DataType) -> tuple[int | None, ...]:
    """The field ids of all fields inside a type, each before those inside it; an entry of a map has none."""
    fields = [kind.field(number) for number in range(kind.num_fields)]
    return tuple(one for field in fields for one in (_id_of(field), *ids_within(field.type)))


def _id_of(field: pa.Field) -> int | None:
    return int(field.metadata[_FIELD_ID]) if field.metadata and _FIELD_ID in field.metadata else None


def footer_with_ids(
    fs: fsspec.AbstractFileSystem, file: str, path: str, *, nulls: bool = False
) -> tuple[Footer, FieldIds]:
    """The footer of a Parquet file, and its field ids; an ``InputError`` if the file is no Parquet file, or is gone."""
    try:
        with for_short_reads(fs, file) as opened:
            parquet = open_parquet(opened)
            footer = parquet_footer(parquet, opened, nulls=nulls)
    except (pa.ArrowException, OSError) as err:
        gone = isinstance(err, FileNotFoundError)
        reason = "none" if gone else first_line(err)
        hint = "its snapshot has expired, or it was removed: choose a later one" if gone else "repair the table"
        raise InputError(f"input file {path}", "a readable Parquet file", reason, hint) from None
    fields = list(parquet.schema_arrow)
    columns = {number: field.name for field in fields if (number := _id_of(field)) is not None}
    return footer, FieldIds(columns, {field.name: ids_within(field.type) for field in fields})


def _orc(fs: fsspec.AbstractFileSystem, file: str) -> Footer:
    size = int(fs.size(file))
    if not size:
        raise OSError("it is empty")
    with fs.open(file, "rb") as opened:
        read = orc.ORCFile(opened)
        types = by_name((field.name, _orc_type(field)) for field in read.schema)
        return Footer(types, read.nrows, ())


def _orc_type(field: pa.Field) -> str:
    kind = _plain_orc_type(field)
    noted = set(_noted(field))
    if noted == {"timestamp_ntz"} and kind == "bigint":
        return "timestamp_ntz"  # in microseconds
    if "`" in str(field):
        return f"{UNSUPPORTED}{kind}, whose name Spark does not find in ORC"
    return f"{UNSUPPORTED}{kind} that stands for {min(noted)}" if noted else kind


def _plain_orc_type(field: pa.Field) -> str:
    # Arrow reads timestamps of ORC as nanoseconds, whatever the file has.
    return "timestamp" if pa.types.is_timestamp(field.type) else spark_type_of(field.type)


def _noted(field: pa.Field) -> Iterator[str]:
    """Of a column and what is within it: types of Spark's own, for which ORC has numbers or texts."""
    told = (field.metadata or {}).get(b"spark.sql.catalyst.type", b"").decode()
    if told not in ("", _plain_orc_type(field)):
        yield told
    for number in range(field.type.num_fields):
        yield from _noted(field.type.field(number))
