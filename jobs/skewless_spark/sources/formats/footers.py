"""The footers of Parquet and ORC files: the columns, and the rows of each row group."""

from __future__ import annotations

from collections.abc import Iterator

import fsspec
import pyarrow as pa
from pyarrow import orc

from skewless.errors import InputError
from skewless.run.objects.location import for_short_reads
from skewless_lake.refusals import first_line
from skewless_spark.sources.formats.parquet import Footer, open_parquet, parquet_footer
from skewless_spark.sources.formats.spark_types import UNSUPPORTED, by_name, spark_type_of

#: The key of a field id in the metadata of an Arrow field.
_FIELD_ID = b"PARQUET:field_id"


def footer_of(fs: fsspec.AbstractFileSystem, file: str, kind: str, path: str, *, nulls: bool = False) -> Footer:
    """Read a footer, and of Parquet the counts of nulls if wanted; an ``InputError`` if it has another format."""
    name = {"parquet": "Parquet", "orc": "ORC"}[kind]
    try:
        return _parquet(fs, file, nulls=nulls) if kind == "parquet" else _orc(fs, file)
    except (pa.ArrowException, OSError, KeyError, IndexError) as err:
        reason = first_line(err)
        raise InputError(f"input file {path}", f"a readable {name} file", reason, "remove or rewrite it") from None


def footer_with_ids(
    fs: fsspec.AbstractFileSystem, file: str, path: str, *, nulls: bool = False
) -> tuple[Footer, dict[int, str]]:
    """The footer of a Parquet file, and the name of the column that has each field id.

    Raises:
        InputError: the file is no Parquet file, or is gone.
    """
    try:
        with for_short_reads(fs, file) as opened:
            parquet = open_parquet(opened)
            footer = parquet_footer(parquet, opened, nulls=nulls)
    except (pa.ArrowException, OSError) as err:
        gone = isinstance(err, FileNotFoundError)
        reason = "none" if gone else first_line(err)
        hint = "its snapshot has expired, or it was removed: choose a later one" if gone else "repair the table"
        raise InputError(f"input file {path}", "a readable Parquet file", reason, hint) from None
    ids = {
        int(field.metadata[_FIELD_ID]): field.name
        for field in parquet.schema_arrow
        if field.metadata and _FIELD_ID in field.metadata
    }
    return footer, ids


def _parquet(fs: fsspec.AbstractFileSystem, file: str, *, nulls: bool) -> Footer:
    with for_short_reads(fs, file) as opened:
        return parquet_footer(open_parquet(opened), opened, nulls=nulls)


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
    if "`" in field.name:
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
