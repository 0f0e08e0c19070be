"""The footers of Parquet and ORC files: the columns, and the rows of each row group or stripe."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import orc

from skewless.errors import InputError
from skewless.run.objects.location import for_short_reads
from skewless_spark.sources.formats.orc_footer import stripes_of
from skewless_spark.sources.formats.spark_types import by_name, spark_type_of, spark_types_of

#: The key of a field id in the metadata of an Arrow field.
_FIELD_ID = b"PARQUET:field_id"


class Footer(NamedTuple):
    """What the footer says about a file.

    Attributes:
        types: the Spark SQL type of each column.
        rows: the rows of the whole file.
        pieces: ``(rows, bytes)`` of each row group or stripe, in order; empty if they are not known.
    """

    types: dict[str, str]
    rows: int
    pieces: Sequence[tuple[int, int]]


def footer_of(fs: fsspec.AbstractFileSystem, file: str, kind: str, path: str) -> Footer:
    """Read a footer.

    Args:
        fs: the file system.
        file: the path in it.
        kind: parquet or orc.
        path: the path in error messages, as a user would write it.

    Raises:
        InputError: the file has another format.
    """
    name = {"parquet": "Parquet", "orc": "ORC"}[kind]
    try:
        return _parquet(fs, file) if kind == "parquet" else _orc(fs, file)
    except (pa.ArrowException, OSError, KeyError, IndexError) as err:
        reason = (str(err).splitlines() or [type(err).__name__])[0][:200]
        raise InputError(f"input file {path}", f"a readable {name} file", reason, "remove or rewrite it") from None


def footer_with_ids(fs: fsspec.AbstractFileSystem, file: str, path: str) -> tuple[Footer, dict[int, str]]:
    """The footer of a Parquet file, and the name of the column that has each field id.

    Args:
        fs: the file system.
        file: the path in it.
        path: the path in error messages, as a user would write it.

    Raises:
        InputError: the file is no Parquet file, or is gone.
    """
    try:
        with for_short_reads(fs, file) as opened:
            metadata = pq.read_metadata(opened)
    except (pa.ArrowException, OSError) as err:
        gone = isinstance(err, FileNotFoundError)
        reason = "none" if gone else (str(err).splitlines() or [type(err).__name__])[0][:200]
        hint = "its snapshot has expired, or it was removed: choose a later one" if gone else "repair the table"
        raise InputError(f"input file {path}", "a readable Parquet file", reason, hint) from None
    ids = {
        int(field.metadata[_FIELD_ID]): field.name
        for field in metadata.schema.to_arrow_schema()
        if field.metadata and _FIELD_ID in field.metadata
    }
    return _told(metadata), ids


def _parquet(fs: fsspec.AbstractFileSystem, file: str) -> Footer:
    with for_short_reads(fs, file) as opened:
        return _told(pq.read_metadata(opened))


def _told(metadata: pq.FileMetaData) -> Footer:
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    # The uncompressed bytes of the groups give the proportions; adding up compressed column chunks would take long.
    return Footer(
        spark_types_of(metadata), metadata.num_rows, [(group.num_rows, group.total_byte_size) for group in groups]
    )


def _orc(fs: fsspec.AbstractFileSystem, file: str) -> Footer:
    size = int(fs.size(file))
    if not size:
        raise OSError("it is empty")
    with fs.open(file, "rb") as opened:
        read = orc.ORCFile(opened)
        # Arrow reads timestamps of ORC as nanoseconds, whatever the file has.
        types = by_name(
            (field.name, "timestamp" if pa.types.is_timestamp(field.type) else spark_type_of(field.type))
            for field in read.schema
        )
        return Footer(types, read.nrows, stripes_of(opened, size) or ())
