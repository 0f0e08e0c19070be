"""The input: listing its files before a run, and reading one wave of them in a stage."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import cast

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
from fsspec.implementations.local import LocalFileSystem
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from skewless.errors import InputError
from skewless.hashing import OFFSET_BITS
from skewless.job import Job, Unit

#: The origin of a row: source partition and offset in one integer (``skewless.hashing.pack_origin``).
ORIGIN = "origin"

#: Assumed types of an input without a single file, which has no schema of its own.
EMPTY_KEY_TYPE, EMPTY_COLUMN_TYPE = "string", "bigint"


@dataclass(frozen=True)
class Listing:
    """The files of an input, by path, with their common schema.

    Attributes:
        units: one per file.
        types: Spark SQL type of each column; empty for an input without files.
    """

    units: tuple[Unit, ...]
    types: dict[str, str]


def list_parquet(path: str) -> Listing:
    """List an input and read its footers, not its rows.

    Args:
        path: a file, a folder (with folders in it) or a glob.

    Raises:
        InputError: there is nothing at the path, a file is no Parquet, or files differ in schema.
    """
    try:
        fs, root = fsspec.core.url_to_fs(path)
    except (ImportError, ValueError) as err:
        raise InputError(
            "input.path", "a path that fsspec can open", f"{path} ({err})", "install what it asks for"
        ) from None
    root = root.rstrip("/")
    files = _find(fs, root, path)
    odd = next((file for file in files if ":" in posixpath.basename(file)), None)
    if odd is not None:
        # Hadoop reads "b:c.parquet" as a URI of the scheme "b".
        raise InputError(f"input file {odd}", "a file name without ':'", "one that Hadoop cannot read", "rename it")
    with ThreadPoolExecutor(max_workers=16) as pool:
        footers = list(pool.map(lambda file: _footer(fs, file), files))
    types = [found for _, found in footers]
    for file, found in zip(files, types, strict=True):
        if found != types[0]:
            _refuse_schema(files[0], types[0], file, found)
    return Listing(tuple(unit for unit, _ in footers), types[0] if types else {})


def _find(fs: fsspec.AbstractFileSystem, root: str, path: str) -> list[str]:
    if not fs.exists(root):
        # Only now a glob: a folder may be called "[1]".
        found = [str(file) for file in fs.glob(root) if fs.isfile(file)] if _is_glob(root) else []
        if not found:
            raise InputError("input.path", "an existing file, folder or glob", f"no such path {path}", "check the path")
        return sorted(found)
    if fs.isfile(root):
        return [root]
    inner = [str(file) for file in fs.find(root)]
    return sorted(file for file in inner if not _hidden(posixpath.relpath(file, root)))


def _is_glob(path: str) -> bool:
    return any(sign in path for sign in "*?[")


def _hidden(name: str) -> bool:
    """Spark's own rule: names that begin with ``_`` or ``.`` are not data."""
    return any(part.startswith((".", "_")) and "=" not in part for part in name.split("/"))


def _footer(fs: fsspec.AbstractFileSystem, file: str) -> tuple[Unit, dict[str, str]]:
    """A file as a unit, and the Spark SQL types of its columns."""
    try:
        with fs.open(file, "rb") as opened:
            metadata = pq.read_metadata(opened)
        size, version = _size_and_version(fs, file)
    except (pa.ArrowException, OSError) as err:
        reason = str(err).splitlines()[0][:200]
        raise InputError(f"input file {file}", "a readable Parquet file", reason, "remove or rewrite it") from None
    path = file if isinstance(fs, LocalFileSystem) else str(fs.unstrip_protocol(file))
    unit = Unit(path=path, rows=metadata.num_rows, size_bytes=size, version=version)
    return unit, spark_types_of(metadata)


def _size_and_version(fs: fsspec.AbstractFileSystem, file: str) -> tuple[int, str]:
    info = fs.info(file)
    stamp = next((info[name] for name in ("ETag", "etag", "mtime", "LastModified", "updated") if name in info), "")
    return int(info["size"]), str(stamp)


def require_unchanged(job: Job, ordinals: Sequence[int]) -> None:
    """Hold files to what they were when the run was prepared, down to the time of their last change.

    A run reads its input bit by bit; files rewritten in between would give a result of two versions.

    Raises:
        InputError: names the first file that is gone or has changed.
    """

    def change(ordinal: int) -> str:
        unit = job.units[ordinal]
        fs, file = fsspec.core.url_to_fs(unit.path)
        try:
            now = _size_and_version(fs, file)
        except FileNotFoundError:
            return f"input file {unit.path} is gone"
        return "" if now == (unit.size_bytes, unit.version) else f"input file {unit.path} was rewritten"

    with ThreadPoolExecutor(max_workers=16) as pool:
        for found in pool.map(change, ordinals):
            if found:
                raise InputError(
                    job.input_path, "the files that the run was prepared with", found,
                    "nothing was committed; start a new run over the new input",
                )  # fmt: skip


def _refuse_schema(first: str, types: dict[str, str], file: str, found: dict[str, str]) -> None:
    odd = next(name for name in {**types, **found} if types.get(name) != found.get(name))
    raise InputError(
        f"input file {file}", f"column {odd!r} of type {types.get(odd, 'none')} as in {posixpath.basename(first)}",
        f"type {found.get(odd, 'none')}", "write all files of an input with one schema",
    )  # fmt: skip


#: Begins the type of a column that Spark cannot read, or that no part of a job may use.
UNSUPPORTED = "unsupported "


def spark_types_of(metadata: pq.FileMetaData) -> dict[str, str]:
    """The Spark SQL type of each column of a Parquet file, as Spark reads it."""
    leaves = {
        leaf.path: leaf.physical_type for leaf in (metadata.schema.column(n) for n in range(metadata.num_columns))
    }
    return {
        field.name: spark_type_of(field.type, leaves.get(field.name, "")) for field in metadata.schema.to_arrow_schema()
    }


def spark_type_of(kind: pa.DataType, physical: str = "") -> str:
    """The Spark SQL type that Spark reads a Parquet column of an Arrow type as.

    Args:
        kind: the Arrow type.
        physical: the physical type in the file. INT96 is a timestamp that Spark reads, although
            Arrow calls it one of nanoseconds; nanoseconds of any other kind Spark refuses.
    """
    if pa.types.is_dictionary(kind):
        found = spark_type_of(kind.value_type)
    elif pa.types.is_decimal(kind):
        found = f"decimal({kind.precision},{kind.scale})"
    elif pa.types.is_timestamp(kind):
        found = _timestamp(kind, physical)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        inner = spark_type_of(kind.value_type)
        found = inner if inner.startswith(UNSUPPORTED) else f"array<{inner}>"
    else:
        found = "binary" if pa.types.is_fixed_size_binary(kind) else _PLAIN_TYPES.get(str(kind), f"{UNSUPPORTED}{kind}")
    return found


def _timestamp(kind: pa.TimestampType, physical: str) -> str:
    if physical == "INT96":
        return "timestamp"
    if kind.unit == "ns":
        return f"{UNSUPPORTED}{kind}"
    return "timestamp" if kind.tz else "timestamp_ntz"


_PLAIN_TYPES = {
    "int8": "tinyint", "int16": "smallint", "int32": "int", "int64": "bigint",
    "uint8": "smallint", "uint16": "int", "uint32": "bigint", "uint64": "decimal(20,0)",
    "float": "float", "halffloat": "float", "double": "double", "bool": "boolean",
    "string": "string", "large_string": "string", "string_view": "string",
    "binary": "binary", "large_binary": "binary", "date32[day]": "date",
}  # fmt: skip


def read_units(spark: SparkSession, job: Job, ordinals: Sequence[int], columns: Sequence[str]) -> DataFrame:
    """The named columns of some source partitions, with the origin of every row.

    Args:
        spark: the session.
        job: the frozen job.
        ordinals: which of its units.
        columns: input columns, in order; they come back as ``c0``, ``c1``, ... and ``origin``.
    """
    types = {**job.key_types, **job.column_types}
    ddl = ", ".join(f"{_quoted(name)} {types[name]}" for name in columns)
    payload = [F.col(_quoted(name)).alias(f"c{number}") for number, name in enumerate(columns)]
    if not ordinals:
        empty = spark.createDataFrame(cast("list[Row]", []), ddl)
        return empty.select(*payload, F.lit(0).cast("bigint").alias(ORIGIN))
    paths = [job.units[ordinal].path for ordinal in ordinals]
    rows = spark.read.schema(ddl).parquet(*map(literally, paths))
    located = rows.select(
        *payload, F.col("_metadata.file_path").alias("file_path"), F.col("_metadata.row_index").alias("row_index")
    )
    known = spark.createDataFrame(
        [(_as_spark_says(path), ordinal) for path, ordinal in zip(paths, ordinals, strict=True)],
        "file_path string, ordinal bigint",
    )
    # A left join: a path that Spark spells differently must stop the run, not lose its rows.
    unknown = F.raise_error(F.concat(F.lit("skewless: not a listed file: "), F.col("file_path")))
    ordinal = F.coalesce(F.col("ordinal"), unknown.cast("bigint"))
    origin = F.shiftleft(ordinal, OFFSET_BITS).bitwiseOR(F.col("row_index")).alias(ORIGIN)
    joined = located.join(F.broadcast(known), "file_path", "left")
    return joined.select(*(f"c{number}" for number in range(len(columns))), origin)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def literally(path: str) -> str:
    """A path that Spark shall not take as a glob, whatever signs are in it."""
    return "".join(f"\\{sign}" if sign in "*?[]{}\\" else sign for sign in path)


#: What java.net.URI leaves as it is in a path, beside letters and digits of any alphabet.
_PLAIN_SIGNS = frozenset("/_-!.~'()*,;:$&+=@")


def _as_spark_says(path: str) -> str:
    """A listed path as ``_metadata.file_path`` spells it: a URI, its other signs in percent.

    A spelling that we fail to foresee ends the run with a sentence; see ``read_units``.
    """
    scheme, mark, rest = path.rpartition("://")
    signs = (sign if sign.isalnum() or sign in _PLAIN_SIGNS else _percent(sign) for sign in rest)
    return f"{scheme}{mark}{''.join(signs)}" if mark else f"file:{''.join(signs)}"


def _percent(sign: str) -> str:
    return "".join(f"%{byte:02X}" for byte in sign.encode()) if sign.isascii() or sign.isspace() else sign
