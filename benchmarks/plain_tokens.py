"""``python -m benchmarks.plain_tokens SOURCES OUTPUT``: the demo's job in plain PySpark, for B11."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

TOKEN = re.compile(r"[A-Za-z_]\w*")
COLUMNS = ("token", "file", "column")


def tokens(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The tokens of some lines, with their file and column."""
    for batch in batches:
        found = [
            (token[0], file, token.start())
            for file, line in zip(batch["file"].to_pylist(), batch["value"].to_pylist(), strict=True)
            for token in TOKEN.finditer(line.decode(errors="replace"))
        ]
        columns = zip(*found, strict=True) if found else ((), (), ())
        arrays = [
            pa.array(one, kind) for one, kind in zip(columns, (pa.string(), pa.string(), pa.int32()), strict=True)
        ]
        yield pa.RecordBatch.from_arrays(arrays, names=list(COLUMNS))


def main(sources: str, output: str) -> None:
    """Count the tokens of all sources."""
    builder = SparkSession.builder.master("local[*]").appName("plain tokens")
    spark = builder.config("spark.ui.enabled", "false").config("spark.driver.memory", "2g").getOrCreate()
    lines = spark.read.option("recursiveFileLookup", "true").option("pathGlobFilter", "*.py").text(sources)
    located = lines.select(F.col("value").cast("binary"), F.col("_metadata.file_path").alias("file"))
    rows = located.mapInArrow(tokens, "token string, file string, column int")
    result = rows.groupBy("token").agg(
        F.count("*").alias("occurrences"),
        F.approx_count_distinct("file").alias("files"),
        F.expr("histogram_numeric(column, 16)").alias("columns"),
    )
    result.coalesce(4).write.parquet(output)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
