"""Every input with every output: folders, Iceberg and Delta tables, on local disks and in a bucket.

Each output gets nine days, each of them from another input, and is read back by the libraries of its kind.
"""

from __future__ import annotations

import collections
import datetime as dt
import io
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.table import Table
from pyspark.sql import SparkSession

from skewless.run.directory import RunDirectory
from skewless.spec.reading import parse_spec
from skewless_lake.catalogs import open_catalog
from skewless_spark.entries.pipeline import Silent, run_pipeline
from skewless_spark.prepare.prepare import prepare
from tests.lake.test_outputs import AGGREGATES as OF_ALL_TYPES
from tests.object_stores import ObjectServer, object_server
from tests.spark.scenario import all_as_clients

pytestmark = pytest.mark.long

FIRST = dt.date(2026, 11, 12)
DAYS = [FIRST + dt.timedelta(days=number) for number in range(9)]
SHARDS = 9
#: The kinds of input, in the order in which the days take them.
INPUTS = ("folder", "iceberg", "delta", "folder in a bucket", "iceberg in a bucket", "delta in a bucket")
OUTPUTS: dict[str, dict[str, Any]] = {
    "folder": {"path": "out"},
    "iceberg": {"format": "iceberg", "path": "local.marts.pages"},
    "delta": {"format": "delta", "path": "marts/pages"},
    "iceberg in a bucket": {"format": "iceberg", "path": "bucket.marts.pages"},
    "delta in a bucket": {"format": "delta", "path": "s3://lake/marts/pages"},
}
AGGREGATES = {**OF_ALL_TYPES, "all": {"function": "collect_list", "column": "tag"}}
COLUMNS = ("page", "price", "ms", "at", "wall", "tiny", "bytes", "on", "word")


def rows(day: int, count: int = 180) -> pa.Table:
    """Rows with nulls in every column, the key included, which differ from day to day."""

    def some(number: int, value: Any) -> Any:
        return None if number % 7 == 3 else value

    span = range(1_000 * day, 1_000 * day + count)
    noon = dt.datetime(2026, 1, 1, 12)  # noqa: DTZ001 - a time on a wall
    zone = noon.replace(tzinfo=dt.UTC)
    seconds = [dt.timedelta(seconds=n, microseconds=n) for n in span]
    columns: dict[str, tuple[pa.DataType, list[Any]]] = {
        "page": (pa.string(), [None if n % 11 == 0 else f"p{n % 5}" for n in span]),
        "price": (pa.decimal128(12, 2), [some(n, Decimal(n) / 100) for n in span]),
        "ms": (pa.int64(), [some(n, n) for n in span]),
        "at": (pa.timestamp("us", "UTC"), [some(n, zone + one) for n, one in zip(span, seconds, strict=True)]),
        "wall": (pa.timestamp("us"), [some(n, noon + one) for n, one in zip(span, seconds, strict=True)]),
        "tiny": (pa.int32(), [some(n, n % 100) for n in span]),
        "bytes": (pa.binary(), [some(n, bytes([n % 256])) for n in span]),
        "on": (pa.date32(), [some(n, FIRST - dt.timedelta(days=n % 400)) for n in span]),
        "word": (pa.string(), [some(n, "often" if n % 4 else "seldom") for n in span]),
        "tags": (pa.list_(pa.string()), [some(n, [f"t{n}", "other"]) for n in span]),
        "shard": (pa.int32(), [n % SHARDS for n in span]),
    }
    return pa.table({name: pa.array(values, kind) for name, (kind, values) in columns.items()})


def wanted(day: int) -> list[dict[str, Any]]:
    """The result of a day by plain Python: what the aggregates mean."""
    by_page = collections.defaultdict[str | None, list[dict[str, Any]]](list)
    for row in rows(day).to_pylist():
        by_page[row["page"]].append(row)
    found = []
    for page, members in by_page.items():
        having = [row for row in members if row["ms"] is not None]  # a row has all of its nulls or none
        counts = collections.Counter(row["word"] for row in having)
        found.append(
            {
                "page": page,
                "rows": len(members),
                "cents": sum((row["price"] for row in having), Decimal(0)),
                "mean": sum(row["ms"] for row in having) / len(having),
                "last": max(row["at"] for row in having),
                "local": min(row["wall"] for row in having),
                "small": max(row["tiny"] for row in having),
                "raw": max(row["bytes"] for row in having),
                "day": max(row["on"] for row in having),
                "top": [{"item": item, "count": count} for item, count in counts.most_common(2)],
                "all": sorted(row["tags"][0] for row in having),
            }
        )
    return sorted(found, key=lambda row: str(row["page"]))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectServer]:
    with object_server("localbucket", tmp_path_factory.mktemp("localbucket")) as found:
        yield found


@pytest.fixture(scope="module")
def root(server: ObjectServer, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A data root with the input of each day."""
    place = tmp_path_factory.mktemp("root")
    with all_as_clients(spark, {**server.environment, **server.catalog("bucket", place / "bucket.db")}):
        for number in range(len(DAYS)):
            _put_input(place, server, number)
        yield place


def _kind_of(number: int) -> str:
    return INPUTS[number % len(INPUTS)]


def _put_input(root: Path, server: ObjectServer, number: int) -> None:
    """The rows of a day, in nine partitions of the kind of input that the day takes."""
    kind, table = _kind_of(number), rows(number)
    where = "s3://lake" if "bucket" in kind else str(root)
    if kind.startswith("iceberg"):
        catalog = open_catalog("bucket" if "bucket" in kind else "local", str(root))
        catalog.create_namespace_if_not_exists("raw")
        made = catalog.create_table(f"raw.clicks{number}", table.schema)
        with made.update_spec() as update:
            update.add_identity("shard")
        made.append(table)
    elif kind.startswith("delta"):
        write_deltalake(f"{where}/raw/clicks{number}", table, partition_by=["shard"])
    else:
        for shard in range(SHARDS):
            out = io.BytesIO()
            pq.write_table(table.filter(pa.compute.equal(table["shard"], shard)).drop_columns("shard"), out)
            name = f"raw/clicks{number}/shard={shard}/part.parquet"
            if "bucket" in kind:
                server.put(name, out.getvalue())
            else:
                (root / name).parent.mkdir(parents=True)
                (root / name).write_bytes(out.getvalue())


def _input(number: int) -> dict[str, Any]:
    kind = _kind_of(number)
    name = f"clicks{number}"
    return {
        "folder": {"path": f"raw/{name}"},
        "iceberg": {"format": "iceberg", "path": f"local.raw.{name}"},
        "delta": {"format": "delta", "path": f"raw/{name}"},
        "folder in a bucket": {"path": f"s3://lake/raw/{name}"},
        "iceberg in a bucket": {"format": "iceberg", "path": f"bucket.raw.{name}"},
        "delta in a bucket": {"format": "delta", "path": f"s3://lake/raw/{name}"},
    }[kind]


def _iceberg(catalog: str, root: Path) -> Table:
    return open_catalog(catalog, str(root)).load_table("marts.pages")


def _of_duckdb(root: Path, server: ObjectServer, output: str) -> pa.Table:
    """What DuckDB reads of the files that the table names; those in a bucket are put on the disk for it first."""
    if output == "folder":
        files = [str(path) for path in (root / "out").rglob("*.parquet")]
    elif output.startswith("iceberg"):
        table = _iceberg("bucket" if "bucket" in output else "local", root)
        files = [task.file.file_path.removeprefix("file://") for task in table.scan().plan_files()]
    else:
        files = DeltaTable(_delta(root, output)).file_uris()
    if "bucket" in output:
        near = root / "near" / output
        for number, file in enumerate(list(files)):
            key = file.removeprefix("s3://lake/")
            copy = near / str(number) / Path(key).parent.name / "part.parquet"
            copy.parent.mkdir(parents=True)
            copy.write_bytes(server.content(key))
            files[number] = str(copy)
    asked = f"SELECT * EXCLUDE date, CAST(date AS DATE) AS date FROM read_parquet({files}, hive_partitioning = true)"
    return duckdb.connect().sql(asked).to_arrow_table()


def _delta(root: Path, output: str) -> str:
    return "s3://lake/marts/pages" if "bucket" in output else str(root / "marts" / "pages")


def _readers(root: Path, server: ObjectServer, output: str) -> dict[str, Callable[[], pa.Table]]:
    found: dict[str, Callable[[], pa.Table]] = {"DuckDB": lambda: _of_duckdb(root, server, output)}
    if output == "folder":
        days = ds.partitioning(pa.schema([("date", pa.date32())]), flavor="hive")
        found["pyarrow"] = lambda: ds.dataset(root / "out", format="parquet", partitioning=days).to_table()
    elif output.startswith("iceberg"):
        catalog = "bucket" if "bucket" in output else "local"
        found["pyiceberg"] = lambda: _iceberg(catalog, root).scan().to_arrow()
    else:
        found["deltalake"] = lambda: pa.table(DeltaTable(_delta(root, output)).to_pyarrow_table())
    return found


def _by_day(table: pa.Table) -> dict[dt.date, list[dict[str, Any]]]:
    """Rows by their day, in the order of their keys; a list of a group's rows has no order of its own here."""
    found = collections.defaultdict[dt.date, list[dict[str, Any]]](list)
    for row in table.to_pylist():
        row["all"] = sorted(row["all"])
        row["last"] = row["last"].astimezone(dt.UTC)
        found[row.pop("date")].append(row)
    return {day: sorted(members, key=lambda row: str(row["page"])) for day, members in found.items()}


@pytest.mark.parametrize("output", list(OUTPUTS))
def test_nine_days_from_all_kinds_of_input_are_read_back(
    spark: SparkSession, server: ObjectServer, root: Path, output: str
) -> None:
    for number, day in enumerate(DAYS):
        raw = {
            "name": "pages", "input": _input(number), "key": "page", "aggregates": AGGREGATES,
            "map": {"select": [*COLUMNS, "tags[0] AS tag"]},
            "output": OUTPUTS[output], "routing": {"first_plan": ["last_run"]},
        }  # fmt: skip
        run = RunDirectory(str(root / "runs" / output.replace(" ", "-") / str(day)))
        prepare(run, parse_spec(json.dumps(raw)), day, str(root))
        run_pipeline(spark, run, Silent())
    expected = {day: wanted(number) for number, day in enumerate(DAYS)}
    for library, read in _readers(root, server, output).items():
        assert _by_day(read()) == expected, library
    if output.startswith("iceberg"):
        table = _iceberg("bucket" if "bucket" in output else "local", root)
        assert {task.file.partition[0] for task in table.scan().plan_files()} == {
            (day - dt.date(1970, 1, 1)).days for day in DAYS
        }
        copy = [_copied(server, root / "bucket")] if "bucket" in output else []
        _require_java_reads([table.metadata_location, *copy], expected)


def _copied(server: ObjectServer, folder: Path) -> str:
    for key in server.keys("warehouse"):
        (folder / key).parent.mkdir(parents=True, exist_ok=True)
        (folder / key).write_bytes(server.content(key))
    return str(folder)


def _require_java_reads(table: list[str], expected: dict[dt.date, list[dict[str, Any]]]) -> None:
    """Iceberg's own Java core sees the same values; it prints them as text."""
    found = subprocess.run(
        [sys.executable, "-m", "tests.lake.java_reader", *table],
        cwd=Path(__file__).parents[2], check=True, capture_output=True, text=True, timeout=180,
    )  # fmt: skip
    told = {(row["date"], row["page"]): row for row in map(json.loads, found.stdout.splitlines())}
    assert told.keys() == {(str(day), row["page"]) for day, members in expected.items() for row in members}
    for day, members in expected.items():
        for row in members:
            seen = told[str(day), row["page"]]
            assert (seen["rows"], seen["cents"], seen["mean"]) == (
                str(row["rows"]),
                str(row["cents"]),
                str(row["mean"]),
            )
            assert (seen["small"], seen["day"]) == (str(row["small"]), str(row["day"]))
            assert dt.datetime.fromisoformat(seen["last"]) == row["last"]
            assert dt.datetime.fromisoformat(seen["local"]) == row["local"]
            assert sorted(seen["all"].strip("[]").split(", ")) == row["all"]
            for word in row["top"]:
                assert word["item"] in seen["top"]
                assert str(word["count"]) in seen["top"]
