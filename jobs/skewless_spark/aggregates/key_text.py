"""The text of a key, as a Spark SQL expression; ``skewless.routing.hashing`` computes the same in Python.

The text routes a row and names a key in plans and reports. Grouping and results never use it: they use the typed key
columns themselves.
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


#: A value of a key column has at most this many bytes. A row is copied several times on its way through a shuffle, a
#: hash map and a Python worker, and none of their buffers holds two gigabytes; real keys are far shorter.
LONGEST_KEY = 64 << 20


def bounded(column: Column, spark_type: str, name: str) -> Column:
    """The column, with an error raised for a value of more than ``LONGEST_KEY`` bytes. The check reads no value.

    Args:
        column: the column.
        spark_type: its type.
        name: its name in the spec, for the error.
    """
    if spark_type not in {"string", "binary"}:
        return column
    whole = InputError(
        f"key column {name!r}", f"values of at most {LONGEST_KEY:,} bytes", "one of {bytes} bytes",
        "group by a hash of it, or by a part",
    )  # fmt: skip
    # Raised in the JVM, it is reported as if one of our Python workers had raised it; see ``spark_errors``.
    before, _, after = f"skewless.errors.InputError: {whole}".partition("{bytes}")
    length = F.octet_length(column)
    sentence = F.concat(F.lit(before), F.format_number(length, 0), F.lit(after))
    return F.when(length > LONGEST_KEY, F.raise_error(sentence).cast(spark_type)).otherwise(column)


def canonical_text(column: Column, spark_type: str) -> Column:
    """One text per value; two values have equal texts only if Spark groups them together.

    A timestamp becomes its microseconds, since one hour of local time occurs twice a year. Negative zero becomes
    zero. Bytes become hexadecimal digits.
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

    A single key column gives null for null, and such a row is routed by its origin. Several columns never give null:
    a null among them is a value like any other.
    """
    texts = [canonical_text(column, kind) for column, kind in zip(columns, spark_types, strict=True)]
    if len(texts) == 1:
        return texts[0]
    parts = [
        F.coalesce(F.concat(F.octet_length(text).cast("string"), F.lit(":"), text, F.lit(",")), F.lit("~,"))
        for text in texts
    ]
    return F.concat(*parts)
