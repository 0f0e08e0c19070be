"""A query as a job, and what plain Spark and DuckDB say of it."""

import datetime as dt
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import sqlglot
import yaml
from pyspark.sql import SparkSession
from sqlglot import exp

from skewless.run.directory import RunDirectory
from skewless.spec.reading import parse_spec
from skewless.spec.spec import JobSpec
from skewless_spark.entries.pipeline import run_stages
from skewless_spark.prepare.prepare import prepare
from skewless_spark.result.merge import merge_states
from tests.query.rows import DAYS, Row
from tests.spark.scenario import Quiet, result_of


def tables_of(text: str, known: Mapping[str, Any]) -> dict[str, Any]:
    """Of the tables that are known, those that a query reads."""
    tree = sqlglot.parse_one(text, read="spark")
    own = {cte.alias for cte in tree.find_all(exp.CTE)}
    return {table.name: known[table.name] for table in tree.find_all(exp.Table) if table.name in known.keys() - own}


def spec_of(text: str, paths: Mapping[str, Path], **fields: Any) -> JobSpec:
    """A query as a spec; with a window, each table that is a folder has a part for each day."""
    tables = {name: {"path": str(path)} for name, path in tables_of(text, paths).items()}
    raw = {"name": "asked", "query": text, "tables": tables, "output": {"path": "out"}}
    spec = parse_spec(yaml.safe_dump(raw))
    if "window" in fields:
        (name,) = tables.keys() - spec.lookups.keys()
        tables[name]["path"] += "/date={date}"
    return parse_spec(yaml.safe_dump(raw | fields)) if fields else spec


def asked(spark: SparkSession, spec: JobSpec, place: Path, day: dt.date = DAYS[-1]) -> list[Row]:
    """The result of a spec, as it is committed."""
    run = RunDirectory(str(place / f"run-{day}"))
    prepare(run, spec, day, str(place))
    run_stages(spark, run, Quiet())
    merge_states(spark, run)
    return result_of(run).to_pylist() if run.committed("result").files else []


@contextmanager
def plain_spark(spark: SparkSession, paths: Mapping[str, Path]) -> Iterator[None]:
    """Tables as views of a session; folders without the days in their names."""
    for name, path in paths.items():
        frame = spark.read.parquet(str(path))
        (frame.drop("date") if path.is_dir() else frame).createOrReplaceTempView(name)
    try:
        yield
    finally:
        for name in paths:
            spark.catalog.dropTempView(name)


def in_spark(spark: SparkSession, text: str) -> list[Row]:
    rows: list[Row] = spark.sql(text).toArrow().to_pylist()
    return rows


def in_duckdb(text: str, paths: Mapping[str, Path]) -> list[Row]:
    """What DuckDB makes of a query in Spark's dialect; see ``loosely``."""
    with duckdb.connect() as database:
        database.execute("SET TimeZone = 'UTC'")
        for name, path in tables_of(text, paths).items():
            files, but = (f"{path}/*/*.parquet", " EXCLUDE (date)") if path.is_dir() else (path, "")
            database.execute(f"CREATE VIEW {name} AS SELECT *{but} FROM '{files}'")
        made = database.sql(sqlglot.transpile(text, read="spark", write="duckdb")[0])
        return loosely(pa.table(made.to_arrow_table()).to_pylist())


def loosely(rows: list[Row]) -> list[Row]:
    """Rows as two engines are compared: columns by their places, decimals as numbers, whose scales differ."""
    return [{str(at): _loose(value) for at, value in enumerate(row.values())} for row in rows]


def _loose(value: Any) -> Any:
    whole = isinstance(value, Decimal) and not value.as_tuple().exponent
    return int(value) if whole else float(value) if isinstance(value, Decimal) else value
