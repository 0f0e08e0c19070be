"""The text of a key, as a Spark SQL expression; ``skewless.routing.hashing`` computes the same in Python.

``arrow_key_text`` computes it for columns of Arrow, where the driver reads keys back.

The text routes a row and names a key in plans and reports. Grouping and results never use it: they use the typed key
columns themselves.
"""

import datetime as dt
import re
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from skewless.errors import InputError
from skewless_spark.sources.formats.input_files import text_literal

#: Column types a key may have, by the first word of the Spark SQL type.
KEY_TYPES = (
    "string", "tinyint", "smallint", "int", "bigint", "decimal", "boolean", "date", "timestamp",
    "timestamp_ntz", "binary", "float", "double",
)  # fmt: skip


#: A value of a key column has at most this many bytes. A row is copied several times on its way through a shuffle, a
#: hash map and a Python worker, and none of their buffers holds two gigabytes; real keys are far shorter.
LONGEST_KEY = 64 << 20


def bounded(column: str, spark_type: str, name: str) -> str:
    """The column, with an error raised for a value of more than ``LONGEST_KEY`` bytes. The check reads no value."""
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
    """The key text of one or several key columns; see ``skewless.routing.hashing.decode_columns``.

    A single key column gives null for null, and such a row is routed by its origin. Several columns never give null:
    a null among them is a value like any other.
    """
    texts = [canonical_text(column, kind) for column, kind in zip(columns, spark_types, strict=True)]
    if len(texts) == 1:
        return texts[0]
    parts = [f"coalesce(concat(CAST(octet_length({text}) AS STRING), ':', {text}, ','), '~,')" for text in texts]
    return f"concat({', '.join(parts)})"


#: Arrow writes these types as Spark does. A decimal with more digits behind the point can be written with an exponent.
_ALIKE = re.compile(r"string|tinyint|smallint|int|bigint|boolean|date|timestamp|binary|decimal\(\d+,[0-6]\)")

#: Days from 1970 to the last one whose year has four digits: a year with more is written with a sign.
_LAST_PLAIN_DAY = (dt.date.max - dt.date(1970, 1, 1)).days


def has_arrow_text(spark_types: Sequence[str]) -> bool:
    """Whether ``arrow_key_text`` can write keys of these types. Floating point numbers it cannot write."""
    return all(_ALIKE.fullmatch(kind) for kind in spark_types)


def arrow_key_text(columns: Sequence[pa.Array], spark_types: Sequence[str]) -> pa.Array:
    """``key_text`` of columns of Arrow, as binary: a string of Spark need not be UTF-8."""
    texts = [_arrow_text(column, kind) for column, kind in zip(columns, spark_types, strict=True)]
    if len(texts) == 1:
        return texts[0]
    nothing = pa.scalar(b"", pa.binary())
    parts = [
        pc.coalesce(
            pc.binary_join_element_wise(
                pc.binary_length(text).cast(pa.string()).cast(pa.binary()), b":", text, b",", nothing
            ),
            b"~,",
        )
        for text in texts
    ]
    return pc.binary_join_element_wise(*parts, nothing)


def _arrow_text(column: pa.Array, spark_type: str) -> pa.Array:
    match spark_type:
        case "timestamp":
            return column.cast(pa.timestamp("us", "UTC")).cast(pa.int64()).cast(pa.string()).cast(pa.binary())
        case "date":  # Arrow has no years beyond 32,767, numpy none of fewer than four digits behind a minus
            far = pc.fill_null(pc.greater(pc.abs(column.cast(pa.int32()).cast(pa.int64())), _LAST_PLAIN_DAY), False)
            texts = np.datetime_as_string(column.filter(far).to_numpy(zero_copy_only=False)).tolist()
            signed = [text if text.startswith("-") else f"+{text}" for text in texts]
            return pc.replace_with_mask(column.cast(pa.string()), far, pa.array(signed, pa.string())).cast(pa.binary())
        case "binary":
            return _hex(column)
        case "string":
            return column.cast(pa.binary())
        case _:
            return column.cast(pa.string()).cast(pa.binary())


def _hex(column: pa.Array) -> pa.Array:
    values = pc.fill_null(column, b"")
    _, ends, data = values.buffers()
    at = np.frombuffer(ends, np.int32, values.offset + len(values) + 1)[values.offset :].astype(np.int64)
    digits = bytes(memoryview(data)[at[0] : at[-1]]).hex().upper().encode() if data else b""
    doubled = pa.py_buffer(((at - at[0]) * 2).astype(np.int64))
    found = pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(values), [None, doubled, pa.py_buffer(digits)])
    return pc.if_else(column.is_valid(), found.cast(pa.binary()), pa.scalar(None, pa.binary()))


class KeyIndex:
    """Numbers the keys of a task 0, 1, 2, ... in order of first appearance; null is a key of its own.

    Arrow does the work; no key becomes a Python object. A batch is numbered by one hash table of all keys known so far
    and of its own, so a batch should have about as many rows as there are known keys, or more.

    >>> index = KeyIndex()
    >>> index.number(pa.array(["b", "a", "b"]))
    (array([0, 1, 0]), array([0, 1]))
    >>> index.number(pa.array(["a", None]))
    (array([1, 2]), array([1]))
    """

    def __init__(self) -> None:
        self._known: pa.Array | None = None

    def __len__(self) -> int:
        """Keys seen so far."""
        return 0 if self._known is None else len(self._known)

    @property
    def keys(self) -> pa.Array:
        """The keys seen so far, in the order of their numbers; null before the first batch."""
        return pa.nulls(0) if self._known is None else self._known

    def number(self, keys: pa.Array) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Number a batch.

        Args:
            keys: strings or binaries, or nulls, shape ``(rows,)``; of the same type in each batch.

        Returns:
            The number of each row's key, shape ``(rows,)``, and the rows at which new keys first appear,
            ascending and so in the order of their numbers, shape ``(new keys,)``.
        """
        known = len(self)
        if not len(keys):
            return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
        before = keys.slice(0, 0) if self._known is None else self._known
        # Arrow numbers values in order of first appearance, so the known keys keep their numbers.
        both = pa.chunked_array([before, keys]).dictionary_encode(null_encoding="encode")
        encoded = both.chunk(both.num_chunks - 1)
        self._known = encoded.dictionary
        codes = encoded.indices.to_numpy()
        # A new key is a new maximum of the numbers where it first appears.
        highest = np.maximum.accumulate(np.maximum(codes, known - 1))
        return codes.astype(np.int64), np.flatnonzero(np.diff(highest, prepend=known - 1))
