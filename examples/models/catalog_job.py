"""Runs a job of the catalog from Python and reads its published result."""

from __future__ import annotations

import datetime as dt
import os
import secrets
from collections.abc import Iterable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from examples import whole
from skewless.publication.records import published_path
from skewless.run.directory import RunDirectory
from skewless.run.folder import RUN_GROUP
from skewless.spec.reading import load_spec
from skewless_spark.entries.pipeline import run_pipeline
from skewless_spark.prepare.prepare import prepare

CATALOG = Path(__file__).parents[2] / "jobs" / "catalog"


def published(spark: SparkSession, name: str, root: Path, overrides: Sequence[str] = ()) -> pa.Table:
    """Run a job of the catalog in a new run directory and read its published result.

    The ``overrides`` are ``path.to.field=value``, as for ``skewless run --set``.
    """
    spec = load_spec(CATALOG / f"{name}.yaml", tuple(overrides))
    now = dt.datetime.now(tz=dt.UTC)
    where = root / "runs" / name / f"model__{now:%Y-%m-%dT%H%M%S}-{secrets.token_hex(3)}"
    run = RunDirectory(str(where), os.environ.get(RUN_GROUP, ""))
    prepare(run, spec, now.date(), str(root))
    run_pipeline(spark, run)
    return pq.read_table(published_path(run.job()), partitioning=None)


def write_parts(folder: Path, parts: Iterable[pa.Table]) -> int:
    """Write tables as the Parquet files of a folder, replacing its content; returns the number of rows."""
    rows = 0
    with whole(folder) as draft:
        for number, part in enumerate(parts):
            pq.write_table(part, draft / f"part-{number:05d}.parquet", compression="zstd")
            rows += part.num_rows
    return rows
