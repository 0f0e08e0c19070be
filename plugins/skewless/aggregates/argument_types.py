"""Which types of argument an aggregate takes: each function is an ``accepts``, "" if the type will do."""

from __future__ import annotations

import re
from collections.abc import Callable

Accepts = Callable[[str], str]

NUMERIC_TYPES = ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal")
INTEGRAL_TYPES = ("tinyint", "smallint", "int", "bigint")


def anything(spark_type: str) -> str:
    """Any type."""
    del spark_type
    return ""


def number_required(spark_type: str) -> str:
    """Any numeric type."""
    return "" if spark_type.split("(", maxsplit=1)[0] in NUMERIC_TYPES else "a number"


def orderable_required(spark_type: str) -> str:
    """A type whose values Spark can compare."""
    return "a type that can be ordered" if spark_type.startswith(("map", "variant")) else ""


def atomic_required(spark_type: str) -> str:
    """A type that a value can be hashed in as one text."""
    return "a column that is no array, map or struct" if spark_type.startswith(("map", "array", "struct")) else ""


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
    return "a column that is no binary, array, map or struct" if odd else ""


def decimal_digits(spark_type: str) -> tuple[int, int] | None:
    """Precision and scale of a decimal type; None for any other."""
    found = re.fullmatch(r"decimal\((\d+),\s*(\d+)\)", spark_type)
    return (int(found[1]), int(found[2])) if found else None
