"""Those who write Parquet: each writes a table into a file as it pleases, the rows being the same."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from tests.differential.values import ROW
from tests.spark.scenario import session_settings

Writer = Callable[[pa.Table, Path, np.random.Generator], None]
#: Spark's ways to write times: the type, and the calendar of old ones.
SPARK_MODES = [
    (kind, mode) for kind in ("INT96", "TIMESTAMP_MICROS", "TIMESTAMP_MILLIS") for mode in ("LEGACY", "CORRECTED")
]


def _some(rng: np.random.Generator, *given: Any) -> Any:
    return given[int(rng.integers(0, len(given)))]


def by_pyarrow(table: pa.Table, path: Path, rng: np.random.Generator) -> None:
    """Versions, codecs, dictionaries, pages, empty row groups, columns that are never null."""
    fields = [
        field.with_nullable(False) if not table[field.name].null_count and rng.random() < 0.5 else field
        for field in table.schema
    ]
    plain = table.cast(pa.schema(fields))
    newest = "natural" in table.schema.names or any(
        pa.types.is_timestamp(kind) and kind.unit == "ns" for kind in table.schema.types
    )
    options = {
        "version": "2.6" if newest else _some(rng, "1.0", "2.4", "2.6"),
        "compression": _some(rng, "none", "snappy", "gzip", "zstd", "lz4", "brotli"),
        "use_dictionary": _some(rng, True, False),
        "data_page_version": _some(rng, "1.0", "2.0"),
        "write_page_checksum": _some(rng, True, False),
        "write_statistics": _some(rng, True, False),
        "store_schema": _some(rng, True, False),
        "store_decimal_as_integer": _some(rng, True, False),
        "data_page_size": _some(rng, 64, 1 << 20),
    }
    with pq.ParquetWriter(path, plain.schema, **options) as writer:
        for part in _parts(plain, rng):
            writer.write_table(part)


def _parts(table: pa.Table, rng: np.random.Generator) -> list[pa.Table]:
    size = int(_some(rng, 3, 17, len(table) + 1))
    found = [table.slice(start, size) for start in range(0, len(table), size)]
    if rng.random() < 0.3:
        found.insert(int(rng.integers(0, len(found) + 1)), table.slice(0, 0))
    return found


def by_pandas(table: pa.Table, path: Path, rng: np.random.Generator) -> None:
    frame = table.to_pandas(types_mapper=pd.ArrowDtype).set_index(ROW)
    frame.to_parquet(path, engine="pyarrow", compression=_some(rng, None, "snappy", "gzip"))


def by_duckdb(table: pa.Table, path: Path, rng: np.random.Generator) -> None:
    codec, version = _some(rng, "snappy", "zstd", "gzip", "uncompressed"), _some(rng, "V1", "V2")
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("given", table)
        connection.execute(f"COPY given TO '{path}' (FORMAT parquet, CODEC '{codec}', PARQUET_VERSION {version})")


def by_polars(table: pa.Table, path: Path, rng: np.random.Generator) -> None:
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    frame.write_parquet(
        path, compression=_some(rng, "zstd", "snappy", "lz4", "uncompressed"),
        row_group_size=int(_some(rng, 5, len(table) + 1)), statistics=bool(_some(rng, True, False)),
    )  # fmt: skip


WRITERS: dict[str, Writer] = {"pyarrow": by_pyarrow, "pandas": by_pandas, "duckdb": by_duckdb, "polars": by_polars}


def by_spark(
    spark: SparkSession, table: pa.Table, declared: str, folder: Path, kind: str, mode: str, files: int
) -> None:
    """Files by Spark itself, in one of its modes, with columns of the declared types."""
    settings = {
        "spark.sql.parquet.outputTimestampType": kind,
        "spark.sql.parquet.datetimeRebaseModeInWrite": mode,
        "spark.sql.parquet.int96RebaseModeInWrite": mode,
    }
    with session_settings(spark, settings):
        frame = spark.createDataFrame(table, declared).repartition(files)
        frame.write.option("parquet.block.size", 512).parquet(str(folder))
