"""The text of a key, as a Spark SQL expression; ``skewless.routing.hashing`` computes the same in Python.

The text routes a row and names a key in plans and reports. Grouping and results never use it: they use the typed key
columns themselves.
"""

from __future__ import annotations

from collections.abc import Sequence

from skewless.errors import InputError

#: Column types a key may have, by the first word of the Spark SQL type.
KEY_TYPES = (
    "string", "tinyint", "smallint", "int", "bigint", "decimal", "boolean", "date", "timestamp",
    "timestamp_ntz", "binary", "float", "double",
)  # fmt: skip


#: A value of a key column has at most this many bytes. A row is copied several times on its way through a shuffle, a
#: hash map and a Python worker, and none of their buffers holds two gigabytes; real keys are far shorter.
LONGEST_KEY = 64 << 20


def text_literal(text: str) -> str:
    """A text as a literal in SQL. Its bytes are written as digits, whatever quotes and backslashes are in it."""
    return f"CAST(X'{text.encode().hex()}' AS STRING)"


def bounded(column: str, spark_type: str, name: str) -> str:
    """The column, with an error raised for a value of more than ``LONGEST_KEY`` bytes. The check reads no value.

    Args:
        column: the column, in SQL.
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
    length = f"octet_length({column})"
    sentence = f"concat({text_literal(before)}, format_number({length}, 0), {text_literal(after)})"
    return f"IF({length} > {LONGEST_KEY}, CAST(raise_error({sentence}) AS {spark_type}), {column})"


def canonical_text(column: str, spark_type: str) -> str:
    """One text per value; two values have equal texts only if Spark groups them together.

    A timestamp becomes its microseconds, since one hour of local time occurs twice a year. Negative zero becomes
    zero. Bytes become hexadecimal digits.
    """
    match spark_type:
        case "string":
            return column
        case "timestamp":
            return f"CAST(unix_micros({column}) AS STRING)"
        case "binary":
            return f"hex({column})"
        case "float" | "double":
            return f"CAST({column} + CAST(0 AS {spark_type}) AS STRING)"
        case _:
            return f"CAST({column} AS STRING)"


def key_text(columns: Sequence[str], spark_types: Sequence[str]) -> str:
    """The key text of one or several key columns; see ``skewless.routing.hashing.encode_columns``.

    A single key column gives null for null, and such a row is routed by its origin. Several columns never give null:
    a null among them is a value like any other.
    """
    texts = [canonical_text(column, kind) for column, kind in zip(columns, spark_types, strict=True)]
    if len(texts) == 1:
        return texts[0]
    parts = [f"coalesce(concat(CAST(octet_length({text}) AS STRING), ':', {text}, ','), '~,')" for text in texts]
    return f"concat({', '.join(parts)})"
