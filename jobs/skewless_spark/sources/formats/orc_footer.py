"""The rows and bytes of each stripe of an ORC file, which pyarrow knows but does not return.

The file ends with a postscript in protocol buffers; before it is the footer, compressed like the columns (ORC
specification v1, "File Tail"). Only the few needed fields are read.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import IO

import pyarrow as pa

_NONE, _ZLIB, _SNAPPY, _ZSTD = 0, 1, 2, 5
#: The last byte of a file is the length of its postscript.
_LONGEST_POSTSCRIPT = 256


def stripes_of(opened: IO[bytes], size: int) -> list[tuple[int, int]] | None:
    """``(rows, bytes)`` of each stripe; None if the footer has an unknown compression."""
    opened.seek(max(0, size - _LONGEST_POSTSCRIPT))
    end = opened.read(_LONGEST_POSTSCRIPT)
    post = dict(_fields(end[-1 - end[-1] : -1]))
    length, codec = int(post[1]), int(post.get(2, _NONE))
    opened.seek(size - 1 - end[-1] - length)
    raw = opened.read(length)
    footer = raw if codec == _NONE else _decompressed(raw, codec)
    if footer is None:
        return None
    stripes = [dict(_fields(value)) for number, value in _fields(footer) if number == 3 and isinstance(value, bytes)]
    return [(int(one.get(5, 0)), sum(int(one.get(part, 0)) for part in (2, 3, 4))) for one in stripes]


def _decompressed(raw: bytes, codec: int) -> bytes | None:
    """A decompressed stream. Each chunk follows three bytes with its length and a flag for uncompressed chunks."""
    found = bytearray()
    at = 0
    while at < len(raw):
        header = int.from_bytes(raw[at : at + 3], "little")
        chunk = raw[at + 3 : at + 3 + (header >> 1)]
        at += 3 + (header >> 1)
        if header & 1:
            found += chunk
        elif codec == _ZLIB:
            found += zlib.decompressobj(-15).decompress(chunk)
        elif codec == _ZSTD:
            found += pa.input_stream(pa.py_buffer(chunk), compression="zstd").read()
        elif codec == _SNAPPY:
            found += pa.decompress(chunk, decompressed_size=_varint(chunk, 0)[0], codec="snappy", asbytes=True)
        else:
            return None
    return bytes(found)


def _fields(raw: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Number and value of each field of a message: varints and strings of bytes."""
    at = 0
    while at < len(raw):
        tag, at = _varint(raw, at)
        kind = tag & 7
        if kind == 0:
            value, at = _varint(raw, at)
            yield tag >> 3, value
        elif kind == 2:
            length, at = _varint(raw, at)
            yield tag >> 3, raw[at : at + length]
            at += length
        else:
            at += {1: 8, 5: 4}[kind]


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = raw[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
