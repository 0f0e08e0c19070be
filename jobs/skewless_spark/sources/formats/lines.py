"""Whole lines of a byte range: a line belongs to the range that it begins in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import IO, NamedTuple

import pyarrow as pa

from skewless.errors import InputError
from skewless_spark.sources.formats.files import open_file
from skewless_spark.sources.formats.spark_types import cast_text, first_bad

BLOCK_BYTES = 4 << 20
#: A range may end in the middle of a line: bytes that are read at a time to find the end of that line.
_TAIL_BYTES = 1 << 12
_MARK = b"\xef\xbb\xbf"


class Block(NamedTuple):
    """Some whole lines of a file. All line ends are converted to one newline.

    Attributes:
        text: the lines, each with its newline except for the last of a file.
        offset: the byte at which the range begins; 0 for the beginning of a file.
        line: the number of lines in the range before this block.
    """

    path: str
    text: bytes
    offset: int
    line: int

    def refusal(self, line: int, required: str, came: str) -> InputError:
        """The error about a line of the block, counted from 0."""
        number = self.line + line + 1
        place = f"line {number:,} after byte {self.offset:,}" if self.offset else f"line {number:,}"
        hint = "nothing was committed; mend the file or the spec's columns"
        return InputError(f"input file {self.path}, {place}", required, came, hint)

    def typed(self, texts: pa.Array, kind: str, field: str, rows_of: Callable[[Block], list[int]]) -> pa.Array:
        """The texts of a field as values of a type; an ``InputError`` names the line of a text that is none."""
        try:
            return cast_text(texts, kind)
        except pa.ArrowInvalid:
            at = first_bad(texts, kind) or 0
            raise self.refusal(rows_of(self)[at], f"a {kind} in {field}", repr(texts[at].as_py())[:100]) from None

    @property
    def filled(self) -> int:
        """The number of lines that are not empty."""
        if self.text.startswith(b"\n") or b"\n\n" in self.text:
            return sum(map(bool, self.text.split(b"\n")))
        return self.text.count(b"\n") + bool(self.text and not self.text.endswith(b"\n"))


def blocks(path: str, span: tuple[int, int] | None) -> Iterator[Block]:
    """The lines that begin in a range, or all lines of a file, a block at a time.

    For a range, only its bytes are read, the byte before it, and the rest of its last line.
    """
    with open_file(path) as opened:
        start, end = span or (0, None)
        pieces = _range(opened, start, end)
        line = 0
        for number, piece in enumerate(pieces):
            text = piece
            if number == 0 and start == 0:
                text = text.removeprefix(_MARK)
            if b"\r" in text:
                text = text.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
            if text:
                yield Block(path, text, start, line)
                line += text.count(b"\n")


def _range(opened: IO[bytes], start: int, end: int | None) -> Iterator[bytes]:
    at = max(0, start - 1)
    if at:
        opened.seek(at)
    carried, aligned = b"", start == 0
    while end is None or at < end:
        raw = opened.read(BLOCK_BYTES if end is None else min(BLOCK_BYTES, end - at))
        if not raw:
            break
        at += len(raw)
        if not aligned:
            newline = raw.find(b"\n")
            if newline < 0:
                continue
            raw, aligned = raw[newline + 1 :], True
        cut = raw.rfind(b"\n") + 1
        if cut:
            yield carried + raw[:cut]
            carried = raw[cut:]
        else:
            carried += raw
    if carried:
        yield carried + (_rest_of_line(opened) if end is not None else b"")


def _rest_of_line(opened: IO[bytes]) -> bytes:
    rest = b""
    while raw := opened.read(_TAIL_BYTES):
        newline = raw.find(b"\n") + 1
        if newline:
            return rest + raw[:newline]
        rest += raw
    return rest
