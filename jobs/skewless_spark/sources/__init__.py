"""The input: its files are listed before a run, and read wave by wave in the stages."""

from __future__ import annotations

from skewless_spark.sources.formats.spark_types import EMPTY_COLUMN_TYPE, EMPTY_KEY_TYPE, UNSUPPORTED
from skewless_spark.sources.identity import require_unchanged
from skewless_spark.sources.listing import Listing, list_input
from skewless_spark.sources.reading import (
    ORIGIN,
    ORIGIN_INDEX,
    Tally,
    parquet_files,
    read_units,
    scanned_bytes,
    source_rows,
)

__all__ = [
    "EMPTY_COLUMN_TYPE",
    "EMPTY_KEY_TYPE",
    "ORIGIN",
    "ORIGIN_INDEX",
    "UNSUPPORTED",
    "Listing",
    "Tally",
    "list_input",
    "parquet_files",
    "read_units",
    "require_unchanged",
    "scanned_bytes",
    "source_rows",
]  # fmt: skip
