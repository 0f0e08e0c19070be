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
    """The files of an input, in order, with their common schema.

    Attributes:
        units: one per file.
        names: each file's path below the input, stable when the input moves.
        types: Spark SQL type of each column; empty for an input without files.
    """

    units: tuple[Unit, ...]
    names: tuple[str, ...]
    types: dict[str, str]


def list_parquet(path: str) -> Listing:
    """List an input and read its footers, not its rows.

    Args:
        path: a file, a folder (with folders in it) or a glob.

    Raises:
        InputError: there is nothing at the path, a file is no Parquet, or files differ in schema.
    """
    fs, root = fsspec.core.url_to_fs(path)
    root = root.rstrip("/")
    files = _find(fs, root, path)
    odd = next((file for file in files if ":" in posixpath.basename(file)), None)
    if odd is not None:
        # Hadoop reads "b:c.parquet" as a URI of the scheme "b".
        raise InputError(f"input file {odd}", "a file name without ':'", "one that Hadoop cannot read", "rename it")
    base = posixpath.dirname(root) if fs.isfile(root) or not fs.exists(root) else root
    with ThreadPoolExecutor(max_workers=16) as pool:
        footers = list(pool.map(lambda file: _footer(fs, file), files))
    types = [_spark_types(schema) for _, _, schema in footers]
    for file, found in zip(files, types, strict=True):
        if found != types[0]:
            _refuse_schema(files[0], types[0], file, found)
    local = isinstance(fs, LocalFileSystem)
    units = tuple(
        Unit(path=file if local else fs.unstrip_protocol(file), rows=rows, size_bytes=size)
        for file, (rows, size, _) in zip(files, footers, strict=True)
    )
    names = tuple(posixpath.relpath(file, base) for file in files)
    return Listing(units, names, types[0] if types else {})


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


def _footer(fs: fsspec.AbstractFileSystem, file: str) -> tuple[int, int, pa.Schema]:
    try:
        with fs.open(file, "rb") as opened:
            metadata = pq.read_metadata(opened)
        return metadata.num_rows, int(fs.size(file)), metadata.schema.to_arrow_schema()
    except (pa.ArrowException, OSError) as err:
        reason = str(err).splitlines()[0][:200]
        raise InputError(f"input file {file}", "a readable Parquet file", reason, "remove or rewrite it") from None


def _refuse_schema(first: str, types: dict[str, str], file: str, found: dict[str, str]) -> None:
    odd = next(name for name in {**types, **found} if types.get(name) != found.get(name))
    raise InputError(
        f"input file {file}", f"column {odd!r} of type {types.get(odd, 'none')} as in {posixpath.basename(first)}",
        f"type {found.get(odd, 'none')}", "write all files of an input with one schema",
    )  # fmt: skip


def _spark_types(schema: pa.Schema) -> dict[str, str]:
    return {field.name: spark_type_of(field.type) for field in schema}


def spark_type_of(kind: pa.DataType) -> str:
    """The Spark SQL type that Spark reads a Parquet column of an Arrow type as."""
    if pa.types.is_dictionary(kind):
        return spark_type_of(kind.value_type)
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_timestamp(kind):
        return "timestamp" if kind.tz else "timestamp_ntz"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"array<{spark_type_of(kind.value_type)}>"
    if pa.types.is_struct(kind):
        return "struct<" + ",".join(f"{field.name}:{spark_type_of(field.type)}" for field in kind) + ">"
    return _PLAIN_TYPES.get(str(kind), str(kind))


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
