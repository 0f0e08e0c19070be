"""Tables of random values of each type, its extremes among them."""

import datetime as dt
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

_MICROSECONDS = [
    -62_135_596_800_000_000, -12_219_292_800_000_001, -12_219_292_800_000_000, -2_208_988_800_000_001, -1, 0, 1,
    1_790_000_000_123_456, 9_223_372_800_123_456, 253_402_300_799_999_999,
]  # fmt: skip
#: Times that nanoseconds hold, in microseconds.
_NEAR = [-9_000_000_000_000_000, -1, 0, 1, 1_790_000_000_123_456, 9_000_000_000_000_001]


class Kind(NamedTuple):
    """A type of a column.

    Attributes:
        arrow: as it is written, unless a writer has a way of its own.
        numbers: the integer type in which the extremes of a time are.
    """

    spark: str
    arrow: pa.DataType
    extremes: Sequence[Any]
    numbers: pa.DataType | None = None


def _integer(spark: str, kind: pa.DataType, low: int, high: int) -> Kind:
    return Kind(spark, kind, [low, low + 1, -1 if low else 1, 0, 1, high - 1, high])


def _decimal(precision: int, scale: int) -> Kind:
    def of(sign: int, *digits: int) -> Decimal:
        return Decimal((sign, digits, -scale))

    most = (9,) * precision
    extremes = [of(1, *most), of(1, 1), of(0, 0), of(0, 1), of(0, *most)]
    return Kind(f"decimal({precision},{scale})", pa.decimal128(precision, scale), extremes)


#: By name: types that all writers have.
COMMON: dict[str, Kind] = {
    "truth": Kind("boolean", pa.bool_(), [True, False]),
    "tiny": _integer("tinyint", pa.int8(), -(2**7), 2**7 - 1),
    "small": _integer("smallint", pa.int16(), -(2**15), 2**15 - 1),
    "whole": _integer("int", pa.int32(), -(2**31), 2**31 - 1),
    "large": _integer("bigint", pa.int64(), -(2**63), 2**63 - 1),
    "single": Kind("float", pa.float32(), [float("nan"), float("inf"), float("-inf"), -0.0, 0.0, 1.5, -3.0e38]),
    "double": Kind("double", pa.float64(), [float("nan"), float("inf"), float("-inf"), -0.0, 0.0, 5e-324, 1.7e308]),
    "money": _decimal(9, 2),
    "amount": _decimal(18, 6),
    "huge": _decimal(38, 10),
    "word": Kind("string", pa.string(), ["", " ", "\x00", "a" * 300, "\u00e9\U0001f600", "NULL", "-"]),
    "raw": Kind("binary", pa.binary(), [b"", b"\x00", b"\xff\xfe", b"a" * 70]),
    "day": Kind("date", pa.date32(), [-719_162, -141_428, -141_427, -25_568, -1, 0, 1, 106_752, 2_932_896], pa.int32()),
    "instant": Kind("timestamp", pa.timestamp("us", "UTC"), _MICROSECONDS, pa.int64()),
    "local": Kind("timestamp_ntz", pa.timestamp("us"), _MICROSECONDS, pa.int64()),
    "many": Kind("array<int>", pa.list_(pa.int32()), [[], [None], [1, 2**31 - 1, None], [-(2**31)]]),
    "words": Kind("array<string>", pa.list_(pa.string()), [[], [""], ["a", None, "\u00e9"]]),
}
#: Types that only some writers have.
OTHER: dict[str, Kind] = {
    "tiny_natural": _integer("smallint", pa.uint8(), 0, 2**8 - 1),
    "small_natural": _integer("int", pa.uint16(), 0, 2**16 - 1),
    "natural": _integer("bigint", pa.uint32(), 0, 2**32 - 1),
    "large_natural": _integer("decimal(20,0)", pa.uint64(), 0, 2**64 - 1),
    "long_word": Kind("string", pa.large_string(), ["", "a", "\u00e9"]),
    "few_words": Kind("string", pa.dictionary(pa.int32(), pa.string()), ["", "a", "\u00e9"]),
    "code": Kind("binary", pa.binary(3), [b"\x00\x00\x00", b"abc", b"\xff\xff\xff"]),
    "half": Kind("float", pa.float16(), [0.5, -2.0, 65504.0]),
    "near_instant": Kind("timestamp", pa.timestamp("ns", "UTC"), _NEAR, pa.int64()),
    "near_local": Kind("timestamp_ntz", pa.timestamp("ns"), _NEAR, pa.int64()),
    "seconds": Kind("timestamp_ntz", pa.timestamp("s"), [value // 10**6 for value in _MICROSECONDS], pa.int64()),
    "days": Kind("array<date>", pa.list_(pa.date32()), [[], [dt.date(1, 1, 1), None, dt.date(9999, 12, 31)]]),
}
KINDS = {**COMMON, **OTHER}
#: The column that tells rows apart.
ROW = "row"


def random_table(rng: np.random.Generator, names: Sequence[str], rows: int, first: int = 0) -> pa.Table:
    columns = {ROW: pa.array(range(first, first + rows), pa.int64())}
    for name in names:
        kind = KINDS[name]
        drawn = rng.integers(0, len(kind.extremes), rows).tolist()
        nulls = rng.random(rows) < 0.1
        values = [None if null else kind.extremes[at] for at, null in zip(drawn, nulls.tolist(), strict=True)]
        columns[name] = _array(values, kind)
    return pa.table(columns)


def _array(values: list[Any], kind: Kind) -> pa.Array:
    if kind.numbers is None:
        if pa.types.is_float16(kind.arrow):
            return pa.array([None if value is None else np.float16(value) for value in values], kind.arrow)
        return pa.array(values, kind.arrow)
    if pa.types.is_timestamp(kind.arrow) and kind.arrow.unit == "ns":
        return pa.array(values, kind.numbers).cast(pa.timestamp("us", kind.arrow.tz)).cast(kind.arrow)
    return pa.array(values, kind.numbers).cast(kind.arrow)
