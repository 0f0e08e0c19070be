"""The text of a key, as a Spark SQL expression; ``skewless.routing.hashing`` says the same in Python.

The text routes a row and names a key in plans and reports. It is never grouped by or put
into a result: there the typed key columns themselves are used.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F

from skewless.errors import InputError

#: Column types a key may have, by the first word of the Spark SQL type.
KEY_TYPES = (
    "string", "tinyint", "smallint", "int", "bigint", "decimal", "boolean", "date", "timestamp",
    "timestamp_ntz", "binary", "float", "double",
)  # fmt: skip


#: Bytes of a key column's value, at most. A row is copied several times on its way through a shuffle, a hash map and
#: a Python worker, and no buffer of any of them holds two gigabytes; keys of kilobytes are unheard of.
LONGEST_KEY = 64 << 20


def bounded(column: Column, spark_type: str, name: str) -> Column:
    """A key column whose values are not longer than ``LONGEST_KEY``; asking for the length of one reads nothing.

    Args:
        column: the column.
        spark_type: its type.
        name: as the spec calls it, for the sentence that ends the step where a value is longer.
    """
    if spark_type not in {"string", "binary"}:
        return column
    whole = InputError(
        f"key column {name!r}", f"values of at most {LONGEST_KEY:,} bytes", "one of {bytes} bytes",
        "group by a hash of it, or by a part",
    )  # fmt: skip
    # Raised in the JVM, it is told as if one of our own workers had raised it; see ``spark_errors``.
    before, _, after = f"skewless.errors.InputError: {whole}".partition("{bytes}")
    length = F.octet_length(column)
    sentence = F.concat(F.lit(before), F.format_number(length, 0), F.lit(after))
    return F.when(length > LONGEST_KEY, F.raise_error(sentence).cast(spark_type)).otherwise(column)


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
    """The key text of one or several key columns; see ``skewless.routing.hashing.encode_columns``.

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
