"""Rows as plain values that can be compared: times as numbers, texts as bytes, floats by their digits."""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

#: How often each row occurs.
Rows = Counter[tuple[Any, ...]]


def rows_of(table: pa.Table, names: Sequence[str]) -> Rows:
    columns = [plain_values(table.column(name)) for name in names]
    return Counter(zip(*columns, strict=True)) if columns else Counter({(): table.num_rows})


def plain_values(column: pa.ChunkedArray) -> list[Any]:
    """The values of a column: years beyond those of Python too, and texts that are not UTF-8."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    return [_plain(value) for value in column.cast(_plain_type(column.type)).to_pylist()]


def _plain_type(kind: pa.DataType) -> pa.DataType:
    found = kind
    if pa.types.is_timestamp(kind) or pa.types.is_time64(kind):
        found = pa.int64()
    elif pa.types.is_date32(kind) or pa.types.is_time32(kind):
        found = pa.int32()
    elif pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        found = pa.binary()
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        found = pa.list_(_plain_type(kind.value_type))
    elif pa.types.is_map(kind):
        found = pa.map_(_plain_type(kind.key_type), _plain_type(kind.item_type))
    elif pa.types.is_struct(kind):
        found = pa.struct([(field.name, _plain_type(field.type)) for field in kind])
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, dict):  # a structure; a shape, as Spark gives it, has the number of its coordinate system
        return value["wkb"] if "wkb" in value else tuple((name, _plain(part)) for name, part in value.items())
    if isinstance(value, list | tuple):  # an array, a map, an entry of a map
        return tuple(map(_plain, value))
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else repr(value)
    return value


def first_difference(found: Rows, wanted: Rows, names: Sequence[str]) -> str:
    missing, further = wanted - found, found - wanted
    told = [
        f"{what} {dict(zip(names, next(iter(rows)), strict=True))}"
        for what, rows in (("lacks", missing), ("has", further)) if rows
    ]  # fmt: skip
    return f"{found.total():,} rows for {wanted.total():,}; {', '.join(told)}"[:600]
