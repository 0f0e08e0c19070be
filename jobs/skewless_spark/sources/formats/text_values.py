"""Values of typed columns from their texts, and the first text that is not a value of its type."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from skewless_spark.sources.formats.spark_types import arrow_type_of

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


def _good(texts: pa.Array, spark_type: str) -> bool:
    try:
        cast_text(texts, spark_type)
    except pa.ArrowInvalid:
        return False
    return True
