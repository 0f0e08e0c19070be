"""The checksums of committed files, and how little has to be read for them."""

from __future__ import annotations

import hashlib
from typing import Any

from skewless.run.objects.location import for_short_reads

#: How a Parquet file ends, behind four bytes with the length of its footer.
_PARQUET_END = b"PAR1"
_BLOCK = 1 << 20


def file_checksum(fs: Any, path: str) -> str:
    """SHA-256 of a file in hex; of a Parquet file, of its footer alone.

    A footer says where each page is, how long it is, and its least and greatest values. Each page carries its own CRC,
    which every reader checks. So nothing is read twice, however large the file is.

    Args:
        fs: the fsspec file system.
        path: the file, without a protocol.

    Raises:
        OSError: it cannot be read, or ends in the middle.
    """
    with fs.open(path, "rb") as opened:
        return _footer_digest(opened, int(fs.size(path))) if path.endswith(".parquet") else _digest(opened)


def content_checksum(fs: Any, path: str) -> str:
    """SHA-256 of a whole file in hex, for files that are copied without a look at their pages.

    Raises:
        OSError: it cannot be read.
    """
    with for_short_reads(fs, path) as opened:
        return _digest(opened)


def _footer_digest(opened: Any, size: int) -> str:
    opened.seek(max(0, size - 8))
    ending = opened.read(8)
    length = int.from_bytes(ending[:4], "little")
    if ending[4:] != _PARQUET_END or length + 12 > size:
        raise OSError("it has no Parquet footer at its end")
    opened.seek(size - 8 - length)
    return hashlib.sha256(opened.read(length)).hexdigest()


def _digest(opened: Any) -> str:
    found = hashlib.sha256()
    while block := opened.read(_BLOCK):
        found.update(block)
    return found.hexdigest()
