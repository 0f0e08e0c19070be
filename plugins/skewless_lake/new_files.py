"""New data files of a table: on the disk, or in the bucket, before the commit that names them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from skewless.run.objects.location import open_location
from skewless.run.publication.exchange import make_folder, sync_file, sync_folder
from skewless_lake.columns import ResultFile, fitted


@contextmanager
def created(path: str) -> Iterator[Any]:
    """A file that is not there yet, open for writing; a local one is on the disk once its name is, see ``sync_names``.

    Nobody is asked whether it is there, as its name was drawn: on an object store that costs more than to write it.

    Args:
        path: a path, or a URL like ``s3://...``.
    """
    if "://" not in path:
        target = Path(path)
        make_folder(target.parent)
        with target.open("xb") as opened:
            yield opened
        sync_file(target)
        return
    fs, there = open_location(path)
    with fs.open(there, "wb") as opened:
        yield opened


def sync_names(paths: Iterable[str]) -> None:
    """Have the names of new files on the disk, once for all files of a folder; on an object store they are."""
    for folder in {Path(path).parent for path in paths if "://" not in path}:
        sync_folder(folder)


def write_rows(stream: Any, file: ResultFile, kind: pa.Schema, parts: Mapping[str, Any], codec: str) -> pq.FileMetaData:
    """Write a result file as Parquet: decimals as integers where they fit, and pages with checksums.

    Args:
        stream: to write to.
        file: of the result.
        kind: the columns of the table's files.
        parts: the values of columns that name the part and are in the files.
        codec: of the pages.

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
        raise AssertionError(f"{rows:,} rows written of {file.rows:,}")
    return footers[0]
