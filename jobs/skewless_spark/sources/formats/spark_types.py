"""Types of columns in Spark SQL and in Arrow, and their values from texts."""

from __future__ import annotations

import re
from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

from skewless.errors import SpecError

#: Assumed types for an input without files, which has no schema.
EMPTY_KEY_TYPE, EMPTY_COLUMN_TYPE = "string", "bigint"

#: The prefix of the type of a column that Spark cannot read, or that a job may not use.
UNSUPPORTED = "unsupported "


def by_name(columns: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The type of each column by its name; one that no job may use if several columns have the name."""
    found: dict[str, str] = {}
    for name, kind in columns:
        found[name] = f"{UNSUPPORTED}{kind}, of several columns with this name" if name in found else kind
    return found


def spark_type_of(kind: pa.DataType, physical: str = "") -> str:
    """The Spark SQL type as which Spark reads a Parquet column of an Arrow type.

    Args:
        physical: the physical type in the file. Spark reads INT96 as a timestamp, which Arrow takes for one without a
            zone.
    """
    if pa.types.is_dictionary(kind):
        found = spark_type_of(kind.value_type, physical)
    elif pa.types.is_decimal(kind):
        found = f"decimal({kind.precision},{kind.scale})"
    elif pa.types.is_timestamp(kind):
        found = "timestamp" if kind.tz or physical == "INT96" else "timestamp_ntz"
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        inner = spark_type_of(kind.value_type, physical)
        found = inner if inner.startswith(UNSUPPORTED) else f"array<{inner}>"
    else:
        found = "binary" if pa.types.is_fixed_size_binary(kind) else _PLAIN_TYPES.get(str(kind), f"{UNSUPPORTED}{kind}")
    return found


_PLAIN_TYPES = {
    "int8": "tinyint", "int16": "smallint", "int32": "int", "int64": "bigint",
    "uint8": "smallint", "uint16": "int", "uint32": "bigint", "uint64": "decimal(20,0)",
    "float": "float", "halffloat": "float", "double": "double", "bool": "boolean",
    "string": "string", "large_string": "string", "string_view": "string",
    "binary": "binary", "large_binary": "binary", "date32[day]": "date",
}  # fmt: skip

_ARROW_TYPES = {
    "tinyint": pa.int8(), "smallint": pa.int16(), "int": pa.int32(), "bigint": pa.int64(),
    "float": pa.float32(), "double": pa.float64(), "boolean": pa.bool_(), "string": pa.string(),
    "binary": pa.binary(), "date": pa.date32(), "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}  # fmt: skip

#: Synonyms of types in Spark SQL.
_SYNONYMS = {"integer": "int", "long": "bigint", "short": "smallint", "byte": "tinyint", "real": "float"}

#: Its precision and its scale.
DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")


def arrow_type_of(spark_type: str) -> pa.DataType:
    """The Arrow type in which Spark exchanges values of a Spark SQL type."""
    decimal = DECIMAL.fullmatch(spark_type)
    if decimal:
        return pa.decimal128(int(decimal[1]), int(decimal[2]))
    if spark_type.startswith("array<"):
        return pa.list_(arrow_type_of(spark_type[len("array<") : -1]))
    return _ARROW_TYPES[spark_type]


def declared_type(text: str, at: str, *, nested: bool) -> str:
    """A type as a spec writes it, in Spark SQL's own spelling.

    Raises:
        SpecError: it is not a type that a text can hold.
    """
    plain = re.sub(r"\s+", "", text).lower()
    plain = _SYNONYMS.get(plain, plain)
    decimal = DECIMAL.fullmatch(plain)
    if nested and plain.startswith("array<") and plain.endswith(">"):
        return f"array<{declared_type(plain[len('array<') : -1], at, nested=True)}>"
    good = plain in _ARROW_TYPES and plain != "binary"
    if not good and not (decimal and int(decimal[2]) <= int(decimal[1]) <= 38):
        known = ", ".join(sorted({*_ARROW_TYPES} - {"binary"}))
        raise SpecError(at, "a type that a text can hold", repr(text), f"these are {known} and decimal(p,s)")
    return plain


_ZONED = r":\d\d(\.\d+)?(Z|[+-]\d\d(:?\d\d)?)$"


def cast_text(texts: pa.Array, spark_type: str) -> pa.Array:
    """Texts as values of a type. Null stays null. A timestamp without a zone is in UTC.

    Raises:
        pa.ArrowInvalid: a text is not a value of the type.
    """
    if spark_type == "timestamp":
        zoned = pc.match_substring_regex(texts, _ZONED)
        kind = arrow_type_of(spark_type)
        plain = pc.cast(pc.if_else(zoned, None, texts), pa.timestamp("us"))
        return pc.coalesce(pc.cast(pc.if_else(zoned, texts, None), kind), pc.assume_timezone(plain, "UTC"))
    if spark_type == "binary":
        return texts.view(pa.binary())
    return texts if spark_type == "string" else pc.cast(texts, arrow_type_of(spark_type))


def first_bad(texts: pa.Array, spark_type: str) -> int | None:
    """The position of the first text that is not a value of the type; None if all are."""
    if _good(texts, spark_type):
        return None
    low, high = 0, len(texts)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _good(texts.slice(low, middle - low), spark_type) else (low, middle)
    return low


def is_utf8(text: bytes) -> bool:
    """Whether bytes are a text."""
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _good(texts: pa.Array, spark_type: str) -> bool:
    try:
        cast_text(texts, spark_type)
    except pa.ArrowInvalid:
        return False
    return True
