"""JSON lines: an object in each line. A missing field is null; a field that is not needed is skipped."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.json as pa_json

from skewless.documents.job import Source, Unit
from skewless.errors import InputError
from skewless_spark.sources.formats.lines import Block, blocks
from skewless_spark.sources.formats.spark_types import arrow_type_of, spark_type_of

#: Types whose values are texts in JSON.
_AS_TEXT = ("date", "timestamp", "timestamp_ntz", "binary")


def infer(block: Block) -> dict[str, str]:
    """The Spark SQL types of the fields of some lines. A text is always a string, even if it looks like a date.

    Raises:
        InputError: a line is not a JSON object.
    """
    table = _table(block, None)
    kinds = {field.name: field.type for field in table.schema}
    textual = (pa.types.is_timestamp, pa.types.is_date, pa.types.is_time, pa.types.is_null)
    return {
        name: "string" if any(one(kind) for one in textual) else spark_type_of(kind) for name, kind in kinds.items()
    }


def read(unit: Unit, source: Source, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The named columns of a unit in their types, in batches.

    Raises:
        InputError: a line is not what the spec declares; the error names file and line.
    """
    kinds = {name: source.columns[name] for name in columns}
    schema = pa.schema(
        [(name, pa.string() if kind in _AS_TEXT else arrow_type_of(kind)) for name, kind in kinds.items()]
    )
    floats = [name for name, kind in kinds.items() if kind in {"float", "double"}]
    for given in blocks(unit.path, unit.span):
        if not given.text.strip():
            continue
        block = given._replace(text=_with_bare_numbers(given.text, floats))
        table = _table(block, schema)
        arrays = [table.column(name).combine_chunks() for name in columns]
        yield pa.RecordBatch.from_arrays(
            [
                block.typed(array, kinds[name], f"field {name!r}", _rows_of) if kinds[name] in _AS_TEXT else array
                for name, array in zip(columns, arrays, strict=True)
            ],
            names=list(columns),
        )


def _with_bare_numbers(text: bytes, names: Sequence[str]) -> bytes:
    """The texts by which Spark writes numbers that JSON lacks, as Arrow takes them: ``"x": "NaN"`` as ``"x": NaN``.

    A name with both of its quotes is nowhere within a text, where a quote follows a backslash.
    """
    if not names or not (b'"NaN"' in text or b'Infinity"' in text):
        return text
    fields = b"|".join(re.escape(json.dumps(name, ensure_ascii=False).encode()) for name in names)
    return re.sub(rb'((?:%b)\s*:\s*)"(NaN|-?Infinity)"' % fields, rb"\1\2", text)


def _table(block: Block, schema: pa.Schema | None) -> pa.Table:
    read_options = pa_json.ReadOptions(use_threads=False, block_size=len(block.text) + 1)
    unexpected = "infer" if schema is None else "ignore"
    parse_options = pa_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior=unexpected)
    try:
        table = pa_json.read_json(pa.py_buffer(block.text), read_options, parse_options)
    except pa.ArrowInvalid as err:
        raise _refusal(block, schema, str(err)) from None
    if not _one_each(block.text, table.num_rows):
        raise _refusal(block, schema, "several objects in one line")
    return table


def _one_each(text: bytes, rows: int) -> bool:
    """Whether each line of a text that parses is one object, blank lines aside."""
    return _one_a_line(text.strip(), rows) or _one_a_line(
        b"\n".join(filter(None, map(bytes.strip, text.split(b"\n")))), rows
    )


def _one_a_line(text: bytes, rows: int) -> bool:
    # A brace that closes, a line end and a brace that opens are nowhere but between two objects.
    return text.count(b"\n") == text.count(b"}\n{") == rows - 1


def _refusal(block: Block, schema: pa.Schema | None, reason: str) -> InputError:
    """The error of a block that cannot be read: the first bad line, searched for only now."""
    lines = block.text.split(b"\n")
    for line in _rows_of(block):
        try:
            found = json.loads(lines[line])
        except ValueError as err:
            return block.refusal(line, "a JSON object", f"text that does not parse ({str(err)[:100]})")
        if not isinstance(found, dict):
            return block.refusal(line, "a JSON object", f"a {type(found).__name__}")
        if schema is not None:
            odd = _odd_field(lines[line], schema)
            if odd:
                return block.refusal(line, f"a {spark_type_of(schema.field(odd).type)} in field {odd!r}",
                            repr(found.get(odd))[:100])  # fmt: skip
    return block.refusal(0, "JSON objects of one kind", reason.splitlines()[0][:200])


def _odd_field(line: bytes, schema: pa.Schema) -> str:
    for field in schema:
        options = pa_json.ParseOptions(explicit_schema=pa.schema([field]), unexpected_field_behavior="ignore")
        try:
            pa_json.read_json(pa.py_buffer(line), parse_options=options)
        except pa.ArrowInvalid:
            return str(field.name)
    return ""


def _rows_of(block: Block) -> list[int]:
    """The lines of a block that hold a row: all that are not blank."""
    return [line for line, text in enumerate(block.text.split(b"\n")) if text.strip()]
