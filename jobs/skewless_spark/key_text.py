"""The text of a key, as a Spark SQL expression; ``skewless.hashing`` says the same in Python.

The text routes a row and names a key in plans and reports. It is never grouped by or put
into a result: there the typed key columns themselves are used.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F

#: Column types a key may have, by the first word of the Spark SQL type.
KEY_TYPES = (
    "string", "tinyint", "smallint", "int", "bigint", "decimal", "boolean", "date", "timestamp",
    "timestamp_ntz", "binary", "float", "double",
)  # fmt: skip


def canonical_text(column: Column, spark_type: str) -> Column:
    """One text per value, and equal texts only for values that Spark's grouping takes as equal.

    A timestamp becomes its microseconds, since its display has an hour that occurs twice a
    year; negative zero becomes zero; bytes become hexadecimal digits.
    """
    match spark_type:
        case "string":
            return column
        case "timestamp":
            return F.unix_micros(column).cast("string")
        case "binary":
            return F.hex(column)
        case "float" | "double":
            return (column + F.lit(0.0).cast(spark_type)).cast("string")
        case _:
            return column.cast("string")


def key_text(columns: Sequence[Column], spark_types: Sequence[str]) -> Column:
    """The key text of one or several key columns; see ``skewless.hashing.encode_columns``.

    A single null key column gives null, which is routed by the row's origin. Several columns
    never give null: a null among them is a value like any other.
    """
    texts = [canonical_text(column, kind) for column, kind in zip(columns, spark_types, strict=True)]
    if len(texts) == 1:
        return texts[0]
    parts = [
        F.coalesce(F.concat(F.octet_length(text).cast("string"), F.lit(":"), text, F.lit(",")), F.lit("~,"))
        for text in texts
    ]
    return F.concat(*parts)
