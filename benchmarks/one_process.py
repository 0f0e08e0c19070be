"""``python -m benchmarks.one_process PEER FORMAT INPUT OUTPUT``: the job of B14 in one process, without Spark."""

from __future__ import annotations

import sys
from pathlib import Path

#: What each reads of the formats of B14.
READS = {"duckdb": ("parquet", "csv", "json"), "polars": ("parquet", "csv", "json")}


def _duckdb(kind: str, source: str, output: str) -> None:
    import duckdb  # noqa: PLC0415  # a process has what it needs, and no more

    files, columns = f"{source}/*", {"key": "VARCHAR", "value": "BIGINT", "visitor": "BIGINT"}
    if kind == "parquet":
        rows = duckdb.read_parquet(files)
    elif kind == "csv":
        rows = duckdb.read_csv(files, header=True, columns=columns)
    else:
        rows = duckdb.read_json(files, format="newline_delimited", columns=columns)
    wanted = "key, count(*) AS n, sum(value)::BIGINT AS total, approx_count_distinct(visitor) AS visitors"
    rows.aggregate(wanted, "key").write_parquet(f"{output}/part.parquet")


def _polars(kind: str, source: str, output: str) -> None:
    import polars as pl  # noqa: PLC0415

    schema = {"key": pl.String, "value": pl.Int64, "visitor": pl.Int64}
    if kind == "parquet":
        rows = pl.scan_parquet(f"{source}/*")
    elif kind == "csv":
        rows = pl.scan_csv(f"{source}/*", schema=schema)
    else:
        rows = pl.scan_ndjson(f"{source}/*", schema=schema)
    found = rows.group_by("key").agg(
        pl.len().cast(pl.Int64).alias("n"),
        pl.col("value").sum().alias("total"),
        pl.col("visitor").approx_n_unique().cast(pl.Int64).alias("visitors"),
    )
    found.sink_parquet(f"{output}/part.parquet")


def main(peer: str, kind: str, source: str, output: str) -> None:
    """Count, sum and a sketch by key."""
    Path(output).mkdir()
    {"duckdb": _duckdb, "polars": _polars}[peer](kind, source, output)


if __name__ == "__main__":
    main(*sys.argv[1:])
