"""The same job with a folder, an Iceberg and a Delta table as its output: readers of all kinds see the same rows."""

import datetime as dt
import decimal
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from deltalake import DeltaTable
from pyiceberg.table import Table
from pyspark.sql import SparkSession
from rich.console import Console

from skewless.errors import SpecError
from skewless.publication.records import publication_of
from skewless.run.directory import RunDirectory
from skewless.spec.reading import parse_spec
from skewless.spec.spec import JobSpec
from skewless_cli import run_view
from skewless_lake.catalogs import open_catalog
from skewless_spark.entries.pipeline import run_pipeline
from skewless_spark.prepare.prepare import prepare
from tests.lake.outputs import publish

DAY = dt.date(2026, 11, 20)
#: One aggregate for each type of result that differs in files: nested ones, decimals, times with and without a zone.
AGGREGATES = {
    "rows": "count",
    "cents": {"function": "sum", "column": "price"},
    "mean": {"function": "avg", "column": "ms"},
    "last": {"function": "max", "column": "at"},
    "local": {"function": "min", "column": "wall"},
    "small": {"function": "max", "column": "tiny"},
    "raw": {"function": "max", "column": "bytes"},
    "day": {"function": "max", "column": "on"},
    "all": {"function": "collect_list", "column": "ms"},
    "top": {"function": "approx_top_k", "column": "word", "k": 2},
}


def rows(count: int = 200) -> pa.Table:
    def some(number: int, value: Any) -> Any:
        return None if number % 7 == 3 else value

    zone = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
    noon = zone.replace(tzinfo=None)
    return pa.table(
        {
            "page": pa.array([None if n % 11 == 0 else f"p{n % 5}" for n in range(count)], pa.string()),
            "price": pa.array([some(n, decimal.Decimal(n) / 100) for n in range(count)], pa.decimal128(12, 2)),
            "ms": pa.array([some(n, n) for n in range(count)], pa.int64()),
            "at": pa.array([some(n, zone + dt.timedelta(seconds=n)) for n in range(count)], pa.timestamp("us", "UTC")),
            "wall": pa.array([some(n, noon + dt.timedelta(seconds=n % 60)) for n in range(count)], pa.timestamp("us")),
            "tiny": pa.array([some(n, n % 100) for n in range(count)], pa.int8()),
            "bytes": pa.array([some(n, bytes([n % 256])) for n in range(count)], pa.binary()),
            "on": pa.array([some(n, DAY - dt.timedelta(days=n)) for n in range(count)], pa.date32()),
            "word": pa.array([some(n, f"w{n % 3}") for n in range(count)], pa.string()),
        }
    )


def spec(root: Path, output: dict[str, Any], **fields: Any) -> JobSpec:
    folder = root / "in"
    folder.mkdir(exist_ok=True)
    for number in range(4):
        pq.write_table(rows().slice(50 * number, 50), folder / f"{number}.parquet")
    raw = {
        "name": "clicks", "input": {"path": str(folder)}, "key": "page", "aggregates": AGGREGATES, "output": output,
        "routing": {"first_plan": ["last_run"]}, **fields,
    }  # fmt: skip
    return parse_spec(yaml.safe_dump(raw, sort_keys=False))


def run(spark: SparkSession, root: Path, given: JobSpec, name: str, day: dt.date = DAY) -> RunDirectory:
    found = RunDirectory(str(root / "runs" / name))
    prepare(found, given, day, str(root))
    run_pipeline(spark, found)
    return found


def iceberg(root: Path) -> Table:
    return open_catalog("local", str(root)).load_table("marts.clicks")


def plain(table: pa.Table) -> list[dict[str, Any]]:
    found = table.drop_columns([name for name in ("date", "hour") if name in table.schema.names]).to_pylist()
    return sorted(found, key=lambda row: str(row["page"]))


OUTPUTS = {
    "iceberg": {"format": "iceberg", "path": "local.marts.clicks"},
    "delta": {"format": "delta", "path": "marts/clicks"},
}


@pytest.fixture(scope="module")
def published(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data root with the result of one job in a folder, in an Iceberg table and in a Delta table."""
    root = tmp_path_factory.mktemp("published")
    for kind, output in {"folder": {"path": "out"}, **OUTPUTS}.items():
        run(spark, root, spec(root, output), kind)
    return root


def test_a_folder_an_iceberg_and_a_delta_table_have_the_same_rows(published: Path) -> None:
    wanted = plain(pq.read_table(published / "out" / "date=2026-11-20", partitioning=None))
    assert len(wanted) == 6
    delta = DeltaTable(str(published / "marts" / "clicks"))
    assert plain(iceberg(published).scan().to_arrow()) == wanted
    assert plain(pa.table(delta.to_pyarrow_table())) == wanted
    files = [task.file.file_path for task in iceberg(published).scan().plan_files()]
    asked = "SELECT page, rows, cents, mean, last, local, small, day FROM read_parquet({})"
    paths = (files, delta.file_uris())
    of_duckdb = [sorted(duckdb.connect().execute(asked.format(one)).fetchall(), key=str) for one in paths]
    assert len(of_duckdb[0]) == 6
    assert of_duckdb[0] == of_duckdb[1]
    assert {(row[0], row[1]) for row in of_duckdb[0]} == {(row["page"], row["rows"]) for row in wanted}


def test_the_files_of_an_iceberg_table_have_its_field_ids_nested_ones_too(published: Path) -> None:
    table = iceberg(published)
    (file, *_) = [task.file.file_path for task in table.scan().plan_files()]
    kind = pq.read_schema(file)
    named = {field.name: int(field.metadata[b"PARQUET:field_id"]) for field in kind}
    assert named == {field.name: field.field_id for field in table.schema().fields}
    element = kind.field("all").type.value_field
    assert int(element.metadata[b"PARQUET:field_id"]) == table.schema().find_field("all.element").field_id


@pytest.mark.long
def test_icebergs_java_core_reads_the_same_rows_nested_fields_too(published: Path) -> None:
    table = iceberg(published)
    found = subprocess.run(
        [sys.executable, "-m", "tests.lake.java_reader", table.metadata_location],
        cwd=Path(__file__).parents[2], check=True, capture_output=True, text=True, timeout=180,
    )  # fmt: skip
    of_java = {row["page"]: row for row in map(json.loads, found.stdout.splitlines())}
    wanted = {row["page"]: row for row in table.scan().to_arrow().to_pylist()}
    assert of_java.keys() == wanted.keys()
    for page, row in wanted.items():
        seen = of_java[page]
        assert (int(seen["rows"]), seen["cents"], seen["day"]) == (row["rows"], str(row["cents"]), str(row["day"]))
        assert [int(one) for one in seen["all"].strip("[]").split(", ")] == row["all"]
        # A struct in a list: without ids of nested fields, Java would see nulls.
        assert all(item["item"] in seen["top"] and str(item["count"]) in seen["top"] for item in row["top"])
        assert seen["last"].startswith(row["last"].strftime("%Y-%m-%dT%H:%M"))
        assert seen["last"].endswith("Z")
        assert not seen["local"].endswith("Z")


@pytest.mark.parametrize("beside", ["", "_quarantine"])
@pytest.mark.parametrize("kind", OUTPUTS)
def test_a_job_does_not_publish_into_the_table_that_it_reads(published: Path, kind: str, beside: str) -> None:
    read = {**OUTPUTS[kind], "path": f"{OUTPUTS[kind]['path']}{beside}"}
    given = spec(published, OUTPUTS[kind], input=read, aggregates={"n": "count"})
    came = "the one whose keys in quarantine" if beside else "the same"
    with pytest.raises(
        SpecError, match=rf"field output\.path: expected another table than the input .*, but got {came}"
    ):
        prepare(RunDirectory(str(published / "runs" / f"{kind}-itself")), given, DAY, str(published))


@pytest.mark.long
def test_an_hour_is_a_partition_of_its_own(spark: SparkSession, tmp_path: Path) -> None:
    output = {**OUTPUTS["iceberg"], "partition": "on_day"}
    given = spec(tmp_path, output, schedule={"cron": "0 * * * *", "part": "hour"})
    for hour in ("01", "02", "01"):
        found = RunDirectory(str(tmp_path / "runs" / f"{hour}{len(list((tmp_path / 'runs').glob('*')))}"))
        prepare(found, given, DAY, str(tmp_path), hour=hour)
        run_pipeline(spark, found)
    table = iceberg(tmp_path).scan().to_arrow()
    assert sorted({(str(row["on_day"]), row["hour"]) for row in table.to_pylist()}) == [
        ("2026-11-20", "01"), ("2026-11-20", "02"),
    ]  # fmt: skip
    assert len(table) == 12


@pytest.mark.long
def test_a_window_keeps_its_states_beside_the_data_root_and_publishes_into_a_table(
    spark: SparkSession, tmp_path: Path
) -> None:
    for number in range(3):
        folder = tmp_path / "in" / f"date={DAY - dt.timedelta(days=number)}"
        folder.mkdir(parents=True)
        pq.write_table(rows(50), folder / "a.parquet")
    aggregates = {"rows": "count", "cents": {"function": "sum", "column": "price"}}
    given = parse_spec(
        "name: w\ninput: {path: 'in/date={date}'}\nkey: page\nwindow: 3\n"
        f"aggregates: {aggregates}\noutput: {{format: iceberg, path: local.marts.clicks}}\n"
    )
    found = run(spark, tmp_path, given, "w")
    published = publication_of(found)
    assert published is not None
    assert run_view.as_object(found)["published_snapshot"] == published.snapshot
    told = Console(width=200, record=True, file=io.StringIO())
    run_view.show(found, told)
    assert f"iceberg://local.marts.clicks/date=2026-11-20, snapshot {published.snapshot}" in told.export_text()
    window = found.job().window
    assert window is not None
    assert window.store.startswith(str(tmp_path / "tables" / "clicks-"))
    assert sum(iceberg(tmp_path).scan().to_arrow()["rows"].to_pylist()) == 150
    assert run(spark, tmp_path, given, "again").job().rows == 0


def test_a_catalog_that_is_not_configured_is_a_sentence(spark: SparkSession, tmp_path: Path) -> None:
    del spark
    given = spec(tmp_path, {"format": "iceberg", "path": "lake.marts.clicks"})
    with pytest.raises(SpecError, match=r"'lake': pyiceberg's configuration names no such catalog; set PYICEBERG"):
        prepare(RunDirectory(str(tmp_path / "run")), given, DAY, str(tmp_path))


@pytest.mark.parametrize("kind", OUTPUTS)
def test_a_run_that_could_not_be_published_does_not_begin(tmp_path: Path, kind: str) -> None:
    publish(tmp_path / "1", tmp_path, kind, "old")
    given = spec(tmp_path, {**OUTPUTS[kind], "partition": "day_of"})
    begun = RunDirectory(str(tmp_path / "run"))
    with pytest.raises(SpecError, match="a table partitioned by day_of, but got one partitioned by date"):
        prepare(begun, given, DAY, str(tmp_path))
    assert not begun.exists("job.json")


@pytest.mark.long
def test_a_table_is_made_with_the_order_of_its_rows(spark: SparkSession, tmp_path: Path) -> None:
    sort = ["last desc", "page"]
    for kind, output in OUTPUTS.items():
        run(spark, tmp_path, spec(tmp_path, {**output, "sort": sort}), kind)
    table = iceberg(tmp_path)
    assert [(table.schema().find_column_name(one.source_id), str(one)) for one in table.sort_order().fields] == [
        ("last", f"{table.schema().find_field('last').field_id} DESC NULLS LAST"),
        ("page", f"{table.schema().find_field('page').field_id} ASC NULLS FIRST"),
    ]
    files = [task.file for task in table.scan().plan_files()]
    assert {file.sort_order_id for file in files} == {table.sort_order().order_id} != {None}
    paths = [file.file_path.removeprefix("file://") for file in files]
    paths += [path.removeprefix("file://") for path in DeltaTable(str(tmp_path / "marts" / "clicks")).file_uris()]
    assert len(paths) >= 4
    for path in paths:
        last = [row["last"] for row in pq.read_table(path, partitioning=None).to_pylist()]
        assert last == sorted(last, reverse=True)
    run(spark, tmp_path, spec(tmp_path, {**OUTPUTS["iceberg"], "sort": ["rows"]}), "otherwise")
    again = iceberg(tmp_path)
    assert again.sort_order() == table.sort_order()
    assert {task.file.sort_order_id for task in again.scan().plan_files()} == {None}


@pytest.mark.long
@pytest.mark.parametrize("kind", OUTPUTS)
def test_every_engine_publishes_into_the_table_that_another_has_made(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    nested = {name: AGGREGATES[name] for name in ("top", "all", "rows")}
    ways = [("combine", {}), ("combine", {"sort": ["rows"]}), ("staged", {}), ("bypass", {})]
    for number, (engine, more) in enumerate(ways):
        given = spec(tmp_path, {**OUTPUTS[kind], **more}, engine=engine, aggregates=nested)
        run(spark, tmp_path, given, f"{engine}{number}", DAY + dt.timedelta(days=number))
    if kind == "iceberg":
        found = iceberg(tmp_path).scan().to_arrow()
    else:
        found = pa.table(DeltaTable(str(tmp_path / "marts" / "clicks")).to_pyarrow_table())
    assert sorted(str(row["date"])[-2:] for row in found.to_pylist()) == sorted(["20", "21", "22", "23"] * 6)
