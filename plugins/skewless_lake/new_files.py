"""New data files of a table: on the disk, or in the bucket, before the commit that names them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from skewless.run.objects.location import open_location, plain_path
from skewless.run.publication.exchange import make_folder, sync_file, sync_folder
from skewless_lake.columns import ResultFile, fitted

T = TypeVar("T")
_THREADS = 8
#: Bytes that are gathered before they are written.
_GATHERED = 1 << 20


def write_all(paths: Sequence[str], files: Sequence[ResultFile], write: Callable[[str, ResultFile], T]) -> list[T]:
    """Write new files, several at a time, and have them on the disk: on an object store they are once written.

    Local files are synced once all of them are written: a thread that syncs a file as soon as it is written waits for
    the disk, and the journal of the file system is written for each one.

    Args:
        paths: of the files; a path, or a URL like ``s3://...``.
        files: what goes into each.
        write: writes one of them, see ``created``.

    Returns:
        What ``write`` says of each.
    """
    local = [place for place in map(_local, paths) if place is not None]
    folders = {path.parent for path in local}
    for folder in folders:
        make_folder(folder)
    with ThreadPoolExecutor(max_workers=_THREADS) as pool:
        written = list(pool.map(write, paths, files))
        list(pool.map(sync_file, local))
    for folder in folders:
        sync_folder(folder)
    return written


@contextmanager
def created(path: str) -> Iterator[pa.NativeFile]:
    """A file that is not there yet, in a folder that is there, open for writing.

    Nobody is asked whether it is there, as its name was drawn: on an object store that costs more than to write it.

    Args:
        path: a path, or a URL like ``s3://...``.
    """
    local = _local(path)
    if local is not None:
        opening = local.open("xb")
    else:
        fs, there = open_location(path)
        opening = fs.open(there, "wb")
    # Only one thread at a time can call Python's own files, and a Parquet file is written in dozens of small pieces.
    with opening as opened:
        gathered = pa.output_stream(opened, compression=None, buffer_size=_GATHERED)
        try:
            yield gathered
        finally:
            gathered.flush()  # and not closed: after an error ``opened`` is to be given up


def _local(path: str) -> Path | None:
    plain = plain_path(path)
    return None if "://" in plain else Path(plain)


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
