"""Arrow's types for Spark SQL's plain ones, so that a state can hold values of whatever column it is given."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from skewless.aggregates.argument_types import decimal_digits

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
