"""Which types of argument an aggregate takes: each function is an ``accepts``, "" if the type will do.

All of them are allow-lists. None accepts a type that a later Spark adds, or one with rules of its own for what is
equal, such as a string with a collation.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa

Accepts = Callable[[str], str]

NUMERIC_TYPES = ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal")
INTEGRAL_TYPES = ("tinyint", "smallint", "int", "bigint")

#: Types of one value each; two values are equal if their bytes are, floating-point numbers beside.
_PLAIN = (
    r"boolean|tinyint|smallint|int|bigint|float|double|decimal\(\d+, ?\d+\)|string|binary|date|timestamp|timestamp_ntz"
)
#: An array or a struct of plain types, which is comparable, and a map of them, which is not.
_COMPARABLE = rf"array<(?:{_PLAIN})>|struct<[^<>:,]+:(?:{_PLAIN})(?:,[^<>:,]+:(?:{_PLAIN}))*>"
_MAP = rf"map<(?:{_PLAIN}),(?:{_PLAIN})>"


def _made_of(inner: str, spark_type: str) -> bool:
    """Whether a type is plain, or nested by some patterns: the innermost is taken for plain until there is none."""
    before, kind = "", spark_type
    while kind != before:
        before, kind = kind, re.sub(inner, "int", kind)
    return re.fullmatch(_PLAIN, kind) is not None


def anything(spark_type: str) -> str:
    """Any type that a state can hold."""
    good = _made_of(f"{_COMPARABLE}|{_MAP}", spark_type)
    return "" if good else "a plain type, or arrays, maps and structs of plain types"


def number_required(spark_type: str) -> str:
    """Any numeric type."""
    return "" if spark_type.split("(", maxsplit=1)[0] in NUMERIC_TYPES else "a number"


def orderable_required(spark_type: str) -> str:
    """A type whose values Spark compares by their bytes, or as numbers."""
    return "" if _made_of(_COMPARABLE, spark_type) else "a plain type, or arrays and structs of plain types"


def atomic_required(spark_type: str) -> str:
    """A type that a value can be hashed in as one text."""
    return "" if re.fullmatch(_PLAIN, spark_type) else "a column of a plain type, no array, map or struct,"


def boolean_required(spark_type: str) -> str:
    """True or false."""
    return "" if spark_type == "boolean" else "a boolean"


def integer_required(spark_type: str) -> str:
    """Bits to work on."""
    return "" if spark_type in INTEGRAL_TYPES else "an integer"


def quantity_required(spark_type: str) -> str:
    """What a quantile of is a value again: a number, a day, a moment."""
    return (
        "" if spark_type in {"date", "timestamp"} or not number_required(spark_type) else "a number, date or timestamp"
    )


def top_k_item_required(spark_type: str) -> str:
    """What ``approx_top_k`` takes in Spark."""
    odd = spark_type == "binary" or atomic_required(spark_type)
    return "a column of a plain type, no binary, array, map or struct," if odd else ""


def one_of_required(*spark_types: str) -> Accepts:
    """Integers of any width, and these types: what a sketch holds as it is, so that others can merge it."""
    names = ", ".join(("an integer", *spark_types[:-1])) + f" or {spark_types[-1]}"
    return lambda spark_type: "" if spark_type in {*INTEGRAL_TYPES, *spark_types} else names


def decimal_digits(spark_type: str) -> tuple[int, int] | None:
    """Precision and scale of a decimal type; None for any other."""
    found = re.fullmatch(r"decimal\((\d+),\s*(\d+)\)", spark_type)
    return (int(found[1]), int(found[2])) if found else None


_ARROW = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_SPARK = {arrow: spark for spark, arrow in _ARROW.items()}


def plain_required(spark_type: str) -> str:
    """For ``accepts``: any type of ``arrow_type_of``."""
    plain = spark_type in _ARROW or decimal_digits(spark_type)
    return "" if plain else "a boolean, a number, a text, binary, a date or a timestamp"


def arrow_type_of(spark_type: str) -> pa.DataType:
    """The Arrow type of a plain Spark SQL type; that of a string for any other, which ``plain_required`` refuses."""
    digits = decimal_digits(spark_type)
    return pa.decimal128(*digits) if digits else _ARROW.get(spark_type, pa.string())


def column_type(options: Any, spark_type: str) -> pa.DataType:
    """``arrow_type_of``, for aggregates whose options do not matter."""
    del options
    return arrow_type_of(spark_type)


def spark_type_of(arrow_type: pa.DataType) -> str:
    """The plain Spark SQL type of an Arrow type; "" for any other."""
    if pa.types.is_decimal(arrow_type):
        return f"decimal({arrow_type.precision},{arrow_type.scale})"
    return _SPARK.get(arrow_type, "")
