"""What tells a file from any other: the checksum that a commit lists, and how little must be read for it."""

from __future__ import annotations

import hashlib
from typing import Any

#: How a Parquet file ends, behind four bytes with the length of its footer.
_PARQUET_END = b"PAR1"
_BLOCK = 1 << 20


def file_checksum(fs: Any, path: str) -> str:
    """SHA-256 of a file in hex; of a Parquet file, of its footer alone.

    A footer says where each page is, how long it is, and what it holds at least and at most; each page carries
    a CRC of its own, which whoever reads it checks. So nothing is read twice, however large it is.

    Args:
        fs: the fsspec file system.
        path: the file, without a protocol.

    Raises:
        OSError: it cannot be read, or ends in the middle.
    """
    with fs.open(path, "rb") as opened:
        return _footer_digest(opened, int(fs.size(path))) if path.endswith(".parquet") else _digest(opened)


def content_checksum(fs: Any, path: str) -> str:
    """SHA-256 of all of a file in hex, for whoever copies it without looking at its pages.

    Raises:
        OSError: it cannot be read.
    """
    with fs.open(path, "rb") as opened:
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
