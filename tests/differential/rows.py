"""Rows as plain values that can be compared: times as numbers, texts as bytes, floats by their digits."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

#: How often each row occurs.
Rows = Counter[tuple[Any, ...]]


def rows_of(table: pa.Table, names: Sequence[str]) -> Rows:
    """The rows of a table, whatever their order."""
    columns = [plain_values(table.column(name)) for name in names]
    return Counter(zip(*columns, strict=True)) if columns else Counter({(): table.num_rows})


def plain_values(column: pa.ChunkedArray) -> list[Any]:
    """The values of a column: years beyond those of Python too, and texts that are not UTF-8."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    return [_plain(value) for value in column.cast(_plain_type(column.type)).to_pylist()]


def _plain_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind) or pa.types.is_time64(kind):
        return pa.int64()
    if pa.types.is_date32(kind) or pa.types.is_time32(kind):
        return pa.int32()
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.binary()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(_plain_type(kind.value_type))
    return kind


def _plain(value: Any) -> Any:
    if isinstance(value, dict):  # a shape, as Spark gives it: with the number of its coordinate system
        return value["wkb"]
    if isinstance(value, list):
        return tuple(map(_plain, value))
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else repr(value)
    return value


def first_difference(found: Rows, wanted: Rows, names: Sequence[str]) -> str:
    """In words, one row that is not on both sides."""
    missing, further = wanted - found, found - wanted
    told = [
        f"{what} {dict(zip(names, next(iter(rows)), strict=True))}"
        for what, rows in (("lacks", missing), ("has", further)) if rows
    ]  # fmt: skip
    return f"{found.total():,} rows for {wanted.total():,}; {', '.join(told)}"[:600]
