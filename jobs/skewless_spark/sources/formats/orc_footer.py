"""What pyarrow does not tell of an ORC file: stripes, the bytes of its texts, and the calendar of its dates.

The file ends with a postscript in protocol buffers; before it are the footer and the statistics of the stripes,
compressed like the columns (ORC specification v1, "File Tail"). Only the few needed fields are read.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skewless.errors import InputError
from skewless_spark.sources.cutting import are_wide

_NONE, _ZLIB, _SNAPPY, _ZSTD = 0, 1, 2, 5
#: The last byte of a file is the length of its postscript.
_LONGEST_POSTSCRIPT = 256
_STRIPES, _TYPES, _OF_COLUMNS, _CALENDAR, _PROLEPTIC = 3, 4, 7, 11, 2
#: Of a column's type: texts.
_TEXTS = (7, 16)
#: The first day of the Gregorian calendar, 1582-10-15, in days since 1970; and that of 1970 in days since 4713 BC.
_NEW_DAYS, _EPOCH = -141_427, 2_440_588


class Tail(NamedTuple):
    """What the end of a file says.

    Attributes:
        stripes: ``(rows, bytes)`` of each; none if the footer has an unknown compression.
        wide: whether a stripe may have so wide texts side by side that Spark's own scan has no memory for them.
    """

    stripes: Sequence[tuple[int, int]]
    wide: bool


def tail_of(opened: IO[bytes], size: int) -> Tail:
    """The stripes of a file; their statistics are read only if the file as a whole may have wide texts."""
    footer = _footer(opened, size)
    if footer is None:
        return Tail((), wide=True)
    stripes = [dict(_fields(value)) for value in _messages(footer, _STRIPES)]
    told = [(int(one.get(5, 0)), sum(int(one.get(part, 0)) for part in (2, 3, 4))) for one in stripes]
    kinds = [dict(_fields(value)).get(1, 0) for value in _messages(footer, _TYPES)]
    return Tail(told, wide=_wide(kinds, _messages(footer, _OF_COLUMNS)) and _wide_stripes(kinds, opened, size))


def has_old_calendar(opened: IO[bytes], size: int) -> bool:
    """Whether dates before 1582-10-15 are of the Julian calendar: Spark takes that of all files that do not deny it."""
    return dict(_footer(opened, size) or ()).get(_CALENDAR) != _PROLEPTIC


def _wide_stripes(kinds: Sequence[int | bytes], opened: IO[bytes], size: int) -> bool:
    stripes = _messages(_footer(opened, size, stripes=True) or (), 1)
    return not stripes or any(_wide(kinds, _messages(_fields(one), 1)) for one in stripes)


def _wide(kinds: Sequence[int | bytes], columns: Sequence[bytes]) -> bool:
    """Whether one of the columns has wide texts, by their statistics: those of some rows, a column's each."""
    if len(columns) != len(kinds):
        return True
    for kind, column in zip(kinds, map(dict, map(_fields, columns)), strict=True):
        values, texts = int(column.get(1, 0)), column.get(4, b"")
        if kind in _TEXTS and values:
            length = dict(_fields(texts)).get(3) if isinstance(texts, bytes) else None
            if length is None or are_wide(values, int(length) >> 1):
                return True
    return False


def _messages(fields: Iterable[tuple[int, int | bytes]], number: int) -> list[bytes]:
    return [value for found, value in fields if found == number and isinstance(value, bytes)]


def in_new_calendar(batch: pa.RecordBatch, path: str) -> pa.RecordBatch:
    """The dates of a file with the old calendar as Spark reads them: the same year, month and day in the new one.

    Raises:
        InputError: there is such a date within a list, a map or a struct.
    """
    arrays = [_new_dates(column) if pa.types.is_date32(column.type) else column for column in batch.columns]
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if pa.types.is_nested(column.type) and any(_is_old(leaf) for leaf in _leaves(column)):
            raise InputError(
                f"input file {path}", "dates before 1582 in columns of their own", f"one within {name!r}",
                "write it with orc.proleptic.gregorian=true",
            )  # fmt: skip
    return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)


def _is_old(days: pa.Array) -> bool:
    earliest = pc.min(days.cast(pa.int32())).as_py()
    return earliest is not None and earliest < _NEW_DAYS


def _leaves(column: pa.Array) -> Iterator[pa.Array]:
    kind = column.type
    if pa.types.is_date32(kind):
        yield column
    elif pa.types.is_struct(kind):
        for number in range(kind.num_fields):
            yield from _leaves(column.field(number))
    elif pa.types.is_map(kind):
        yield from _leaves(column.keys)
        yield from _leaves(column.items)
    elif pa.types.is_list(kind):
        yield from _leaves(column.flatten())


def _new_dates(days: pa.Array) -> pa.Array:
    """Days since 1970, by the names that they have in the Julian calendar (Explanatory Supplement 2013, 15.11)."""
    if not _is_old(days):
        return days
    given = days.cast(pa.int32()).fill_null(0).to_numpy().astype(np.int64)
    count = given + _EPOCH + 32_082
    year = (4 * count + 3) // 1461
    rest = count - 1461 * year // 4
    month = (5 * rest + 2) // 153
    day = rest - (153 * month + 2) // 5
    months = (year - 4800 + month // 10 - 1970) * 12 + month + 2 - 12 * (month // 10)
    named = months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64) + day
    converted = np.where(given < _NEW_DAYS, named, given).astype(np.int32)
    return pa.array(converted, pa.int32(), mask=days.is_null().to_numpy(zero_copy_only=False)).cast(pa.date32())


def _footer(opened: IO[bytes], size: int, *, stripes: bool = False) -> list[tuple[int, int | bytes]] | None:
    """The fields of the footer, or of the statistics of the stripes; None if the compression is unknown."""
    opened.seek(max(0, size - _LONGEST_POSTSCRIPT))
    end = opened.read(_LONGEST_POSTSCRIPT)
    post = dict(_fields(end[-1 - end[-1] : -1]))
    length, codec = int(post[1]), int(post.get(2, _NONE))
    before = size - 1 - end[-1] - length
    if stripes:
        length = int(post.get(5, 0))
        before -= length
    opened.seek(before)
    raw = opened.read(length)
    footer = raw if codec == _NONE else _decompressed(raw, codec)
    return None if footer is None else list(_fields(footer))


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
