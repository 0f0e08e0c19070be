"""CSV: a line is a row, fields may be quoted, and an empty field is null unless it is quoted."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv

from skewless.documents.job import Source, Unit
from skewless.errors import InputError
from skewless_spark.sources.formats.lines import Block, blocks
from skewless_spark.sources.formats.spark_types import is_utf8


def header_of(line: bytes, delimiter: str, file: str) -> list[str]:
    """The column names that the first line of a file gives.

    Raises:
        InputError: there are no names, or one occurs twice.
    """
    try:
        names = next(csv.reader([line.decode().rstrip("\r\n")], delimiter=delimiter, strict=True), [])
    except (UnicodeDecodeError, csv.Error) as err:
        raise InputError(f"input file {file}, line 1", "a header", str(err)[:200], "or say header: false") from None
    twice = next((name for name in names if names.count(name) > 1 or not name), None)
    if not names or twice is not None:
        came = "an empty line" if not names else f"{twice!r} among them" if not twice else f"{twice!r} twice"
        raise InputError(f"input file {file}, line 1", "a header of different names", came, "or say header: false")
    return names


def names_in(path: str, delimiter: str) -> list[str]:
    """The column names in the header of a file; none in an empty file."""
    first = next(blocks(path, (0, 1)), None)
    return header_of(first.text.partition(b"\n")[0], delimiter, path) if first else []


def read(unit: Unit, source: Source, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The named columns of a unit in their types, in batches; without a name, any column.

    A file's own header says which of a line's values a column is.

    Raises:
        InputError: a line is not what the spec declares; the error names file and line.
    """
    own = list(source.columns)
    if source.header and unit.span and unit.span[0]:  # its header is before the range
        own = names_in(unit.path, source.delimiter)
    for block in blocks(unit.path, unit.span):
        below = block
        if source.header and not block.offset and not block.line:
            first, _, rest = block.text.partition(b"\n")
            own = header_of(first, source.delimiter, unit.path)
            below = block._replace(text=rest, line=1)
        if below.text.strip(b"\n"):
            yield _parsed(below, unit, source, own, list(columns) or own[:1])


def _parsed(block: Block, unit: Unit, source: Source, own: Sequence[str], columns: Sequence[str]) -> pa.RecordBatch:
    odd: list[Any] = []

    def refuse(row: Any) -> str:
        odd.append(row)
        return "error"

    read_options = pa_csv.ReadOptions(use_threads=False, block_size=len(block.text) + 1, column_names=own)
    parse_options = pa_csv.ParseOptions(delimiter=source.delimiter, invalid_row_handler=refuse)
    # Where the header lacked a column when the input was listed, and the spec allows that, the column is null.
    convert_options = pa_csv.ConvertOptions(
        include_columns=list(columns), include_missing_columns=None in unit.inner.values(), strings_can_be_null=True,
        column_types=dict.fromkeys(columns, pa.string()), null_values=[""], quoted_strings_can_be_null=False,
    )  # fmt: skip
    try:
        table = pa_csv.read_csv(pa.py_buffer(block.text), read_options, parse_options, convert_options)
    except pa.ArrowInvalid as err:
        raise _refusal(block, len(own), odd, err) from None
    if table.num_rows != block.filled:
        lines = _rows_of(block)
        spot = next((line for line in lines if block.text.split(b"\n")[line].count(b'"') % 2), lines[0])
        raise block.refusal(spot, "a row in one line", "a quoted value that does not end in its line")
    _refuse_odd_quotes(block, source.delimiter.encode())
    texts = [column.combine_chunks() for column in table.columns]
    return pa.RecordBatch.from_arrays(
        [
            block.typed(array, source.columns[name], f"column {name!r}", _rows_of)
            for name, array in zip(columns, texts, strict=True)
        ],
        names=list(columns),
    )


def _refuse_odd_quotes(block: Block, delimiter: bytes) -> None:
    """Refuse what Arrow reads all the same: a quoted text with more text after it, ``"a"b``, or without an end."""
    if b'"' not in block.text or _all_quote_whole_values(block.text, delimiter):
        return
    mark = re.escape(delimiter)
    after = re.compile(rb'(?:[^%b"][^%b]*|"(?:[^"]|"")*"|)(?:%b|$)' % (mark, mark, mark))
    for line, text in enumerate(block.text.split(b"\n")):
        at = 0
        while text.find(b'"', at) >= 0:
            value = after.match(text, at)
            if value is None:
                came = repr(text[at : at + 80].decode(errors="replace"))
                raise block.refusal(
                    line, "a quoted value that ends in its line, and nothing more up to a delimiter", came
                )
            at = value.end()


def _all_quote_whole_values(text: bytes, delimiter: bytes) -> bool:
    """Whether quotes stand at the beginnings and ends of values alone, and in pairs within quoted ones.

    Then each first one of two opens a value, or is the second of a pair, and each second one closes a value, or is the
    first of a pair.
    """
    signs = np.frombuffer(b"\n" + text + b"\n", np.uint8)
    quotes = np.flatnonzero(signs == ord('"'))
    if len(quotes) % 2:
        return False
    at_ends = np.zeros(256, dtype=bool)
    at_ends[[ord(delimiter), ord("\n"), ord('"')]] = True
    return bool(at_ends[signs[quotes[0::2] - 1]].all() and at_ends[signs[quotes[1::2] + 1]].all())


def _refusal(block: Block, fields: int, odd: Sequence[Any], err: pa.ArrowInvalid) -> InputError:
    lines = _rows_of(block)
    if odd and odd[0].number is not None:
        row = odd[0]
        line = lines[min(row.number - 1, len(lines) - 1)]
        return block.refusal(line, f"{row.expected_columns} fields", f"{row.actual_columns}: {row.text[:80]!r}")
    broken = next((line for line, text in enumerate(block.text.split(b"\n")) if not is_utf8(text)), None)
    if broken is not None:
        return block.refusal(broken, "text in UTF-8", "other bytes")
    return block.refusal(lines[0] if lines else 0, f"lines of {fields} fields", str(err).splitlines()[0][:200])


def _rows_of(block: Block) -> list[int]:
    """The lines of a block that hold a row: all that are not empty."""
    return [line for line, text in enumerate(block.text.split(b"\n")) if text]
