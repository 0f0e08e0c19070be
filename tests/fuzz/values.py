"""Kinds of columns: what is drawn for them, how texts spell it, and when two values are one."""

import datetime as dt
import math
import random
import string
import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any, NamedTuple

import pyarrow as pa

Row = dict[str, Any]

#: Texts that readers, shells, SQL and CSV are known to trip over. None of them has the end of a line.
ODD_TEXTS = (
    "", " ", "  two ", "null", "NULL", "\\N", "NaN", "None", "0", "007", "1e3", "true", "2026-01-01", "-", "'",
    '"', '""', "a,b", ";", "a\tb", "\\", "\\\\", "a\\", 'a\\"b', "%", "%20", "$x", "{date}", "<b>", "é", "e\u0301", "ß",
    "ẞ", "İ", "ſ", "日本", "🜁", "👩\u200d👧", "\u200b", "\ufeff", "\u202eabc", "\u00a0", "\ufffc", "\uffff",
    "\U0010ffff",
    "\x00", "a\x00", "a\x00b", "\x01", "\x7f", "x" * 300, "__HIVE_DEFAULT_PARTITION__",
)  # fmt: skip
#: Such texts with what Unicode or Python, not Spark, takes for the end of a line; and U+FFFD, which a CSV may not have.
LINE_TEXTS = ("\u2028", "a\u2029\ufffd", "\x85", "\x0b", "\x0c", "\x1c", "\x1e")


class Kind(NamedTuple):
    """A kind of column.

    Attributes:
        draw: gives a value that is not null.
    """

    name: str
    spark: str
    arrow: pa.DataType
    draw: Callable[[random.Random], Any]


def _text(chance: random.Random) -> str:
    pick = chance.random()
    if pick < 0.6:
        return f"w{min(int(chance.paretovariate(0.8)), 60)}"
    if pick < 0.9:
        return chance.choice(ODD_TEXTS)
    return "".join(chance.choice(string.printable[:94] + "äλ") for _ in range(chance.randrange(12)))


def _lines(chance: random.Random) -> str:
    return chance.choice(LINE_TEXTS) if chance.random() < 0.2 else _text(chance)


def _whole(bits: int) -> Callable[[random.Random], int]:
    limit = 1 << (bits - 1)

    def draw(chance: random.Random) -> int:
        pick = chance.random()
        if pick < 0.7:
            return chance.randint(-9, 40)
        if pick < 0.85:
            return chance.choice([0, 1, -1, limit - 1, -limit, limit // 2])
        return chance.randrange(-limit, limit)

    return draw


def _moderate(chance: random.Random) -> int:
    return chance.randint(-9, 40) if chance.random() < 0.8 else chance.randrange(-(1 << 50), 1 << 50)


def _real(chance: random.Random) -> float:
    pick = chance.random()
    if pick < 0.4:
        return chance.randint(-9, 40) / 4
    return 0.0 if pick < 0.45 else chance.gauss(0, 300)


def _odd_real(chance: random.Random) -> float:
    if chance.random() < 0.5:
        return chance.choice([math.nan, math.inf, -math.inf, -0.0, 0.0, 5e-324, 1.7976931348623157e308, 1e-300, 0.1])
    return _real(chance)


def _single(chance: random.Random) -> float:
    return float(struct.unpack("f", struct.pack("f", _real(chance)))[0])


def _decimal(digits: int, scale: int) -> Callable[[random.Random], Decimal]:
    def draw(chance: random.Random) -> Decimal:
        most = 10 ** (4 if chance.random() < 0.7 else digits - 4)
        return Decimal(chance.randrange(-most, most)).scaleb(-scale)

    return draw


def _date(chance: random.Random) -> dt.date:
    pick = chance.random()
    if pick < 0.8:
        return dt.date(2026, 1, 1) + dt.timedelta(days=chance.randrange(40))
    return chance.choice([dt.date(1970, 1, 1), dt.date(1969, 12, 31), dt.date(1900, 1, 1), dt.date(2100, 2, 28)])


def _old_date(chance: random.Random) -> dt.date:
    odd = [dt.date.min, dt.date.max, dt.date(1582, 10, 4), dt.date(1582, 10, 15), dt.date(1000, 2, 28)]
    return chance.choice(odd) if chance.random() < 0.3 else _date(chance)


def _wall(chance: random.Random) -> dt.datetime:
    day = dt.datetime.combine(_date(chance), dt.time())
    return day + dt.timedelta(seconds=chance.randrange(86400), microseconds=chance.choice([0, 0, 1, 999_999, 123_000]))


def _moment(chance: random.Random) -> dt.datetime:
    return _wall(chance).replace(tzinfo=dt.UTC)


def _bytes(chance: random.Random) -> bytes:
    return chance.choice([b"", b"\0", b"\xff\xfe", b"a", b"ab", chance.randbytes(3)])


KINDS = {
    kind.name: kind
    for kind in (
        Kind("text", "string", pa.string(), _text),
        Kind("lines", "string", pa.string(), _lines),
        Kind("tinyint", "tinyint", pa.int8(), _whole(8)),
        Kind("smallint", "smallint", pa.int16(), _whole(16)),
        Kind("int", "int", pa.int32(), _whole(32)),
        Kind("bigint", "bigint", pa.int64(), _moderate),
        Kind("huge", "bigint", pa.int64(), _whole(64)),
        Kind("double", "double", pa.float64(), _real),
        Kind("odd double", "double", pa.float64(), _odd_real),
        Kind("float", "float", pa.float32(), _single),
        Kind("decimal", "decimal(12,2)", pa.decimal128(12, 2), _decimal(12, 2)),
        Kind("wide decimal", "decimal(22,5)", pa.decimal128(22, 5), _decimal(22, 5)),
        Kind("boolean", "boolean", pa.bool_(), lambda chance: chance.random() < 0.6),
        Kind("date", "date", pa.date32(), _date),
        Kind("old date", "date", pa.date32(), _old_date),
        Kind("timestamp", "timestamp", pa.timestamp("us", "UTC"), _moment),
        Kind("wall", "timestamp_ntz", pa.timestamp("us"), _wall),
        Kind("binary", "binary", pa.binary(), _bytes),
    )
}
#: What can be added up without an overflow or a value that swallows all others.
NUMBERS = ("tinyint", "smallint", "int", "bigint", "double", "float", "decimal", "wide decimal")
WHOLE = ("tinyint", "smallint", "int", "bigint", "huge")
REAL = ("double", "float")


def canonical(value: Any) -> Any:
    """The value in a form in which two are equal just if Spark groups them together, and which can be hashed."""
    if isinstance(value, bool):
        return ("true",) if value else ("false",)
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    if isinstance(value, dt.datetime):
        return value if value.tzinfo is None else value.astimezone(dt.UTC).replace(tzinfo=None)
    if isinstance(value, dict):
        return tuple((name, canonical(one)) for name, one in value.items())
    if isinstance(value, list):
        return tuple(canonical(one) for one in value)
    return value


def rank(value: Any) -> Any:
    """A sort key of values that are not null, in Spark's order: NaN is the greatest number."""
    if not isinstance(value, float):
        return value
    return (True, 0.0) if math.isnan(value) else (False, value + 0.0)  # no NaN equals another


def spelled(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dt.datetime):
        return value.replace(tzinfo=None).isoformat(" ")
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else {"nan": "NaN", "inf": "Inf", "-inf": "-Inf"}[repr(value)]
    return str(value)
