"""Files of a table that hold no row of ``map.where`` are left out, and no row is lost by it."""

from __future__ import annotations

import datetime as dt
import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.transforms import DayTransform, HourTransform
from pyiceberg.typedef import Record
from pyiceberg.types import LongType
from pyspark.sql import SparkSession
from rich.console import Console

from skewless.run.directory import RunDirectory
from skewless.spec.input import Input
from skewless.spec.part import Part
from skewless_cli import run_summary, run_view
from skewless_cli.running import check_job
from skewless_spark.mapping.conditions import Condition, Typed, conditions_of, possible
from skewless_spark.prepare.prepare import prepare
from skewless_spark.sources.lake.delta import delta_snapshot
from tests.lake_tables import append, data_file, iceberg_table, lake
from tests.spark.scenario import DATE, session_settings
from tests.spark.test_lake_inputs import spec_over

FILES, ROWS = 6, 20
START = dt.datetime(2026, 11, 1, tzinfo=dt.UTC)


def rows(file: int) -> pa.Table:
    """Rows of a file: of one day, one range of numbers and one letter; some values are null."""
    span = range(ROWS * file, ROWS * (file + 1))
    times = [START + dt.timedelta(days=file, minutes=n, microseconds=999_999) for n in range(ROWS)]
    return pa.table(
        {
            "k": pa.array([f"key{n % 3}" for n in span]),
            "v": pa.array([None if n % 5 == 0 else n for n in span], pa.int64()),
            "s": pa.array([f"{'abcdef'[file]}-{'long' * 20}-{n}" for n in span]),
            "day": pa.array([one.date() for one in times]),
            "at": pa.array(times, pa.timestamp("us", "UTC")),
            "wall": pa.array([one.replace(tzinfo=None) for one in times], pa.timestamp("us")),
            "x": pa.array([float("nan") if n % 7 == 0 else float(n) for n in span]),
        }
    )


def make(kind: str, root: Path, *, parted: bool = False) -> dict[str, Any]:
    """A table of the six files; the input section that names it."""
    if kind == "delta":
        for file in range(FILES):
            write_deltalake(str(root / "t"), rows(file), mode="append", partition_by=["day"] if parted else None)
        return {"format": "delta", "path": "t"}
    table = iceberg_table(root, rows(0).schema, PartitionSpec())
    if parted:
        with table.update_spec() as update:
            update.add_identity("day")
    for file in range(FILES):
        table.append(rows(file))
    return {"format": "iceberg", "path": "local.db.clicks"}


#: A condition, and the files that it leaves.
CONDITIONS = [
    ("v >= 100", 1),
    ("v > 99", 1),
    ("100 <= v", 1),
    ("v < 20", 1),
    ("v <= 20", 1),  # 20 is null
    ("v = 21", 1),
    ("V = 21", 1),
    ("v IN (21, 61, 1000)", 2),
    ("v BETWEEN 21 AND 50", 2),
    ("v > 30 AND length(s) > 3", 5),
    ("v > 30 OR k = 'key1'", 6),
    ("NOT v > 30", 6),
    ("v > 30.5", 6),
    ("v = '21'", 6),
    ("s >= 'e'", 2),
    ("s = 'c-longlonglonglong'", 6),
    ("day = DATE '2026-11-03'", 1),
    ("day >= '2026-11-03' AND day < '2026-11-05'", 2),
    ("at >= '2026-11-06'", 1),
    ("at >= TIMESTAMP '2026-11-06 00:19:00'", 1),
    ("at > TIMESTAMP '2026-11-05 00:19:00.999998'", 2),
    ("wall < DATE '2026-11-02'", 1),
    ("at >= '2026-11-06 00:00:00' AND v > 5", 1),
    ("x > 1000.0", 6),  # to Spark, NaN is greater
    ("v IS NOT NULL", 6),
    ("v > 1000000", 0),
]
#: Bounds of texts are cut off, so a file may stay for a text that it does not hold.
AT_MOST = {"s = 'c-longlonglonglong'"}


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, dict[str, Any]]]:
    made = {}
    for kind in ("iceberg", "delta", "iceberg parted", "delta parted"):
        root = tmp_path_factory.mktemp(kind.replace(" ", "-"))
        made[kind] = root, make(kind.partition(" ")[0], root, parted="parted" in kind)
    return made


def _texts(path: str) -> pa.Table:
    """The column that tells all rows apart."""
    return pq.read_table(path, columns=["s"], partitioning=None)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["iceberg", "delta", "iceberg parted", "delta parted"])
def test_conditions_leave_out_files_by_their_bounds_and_no_row(
    spark: SparkSession, tables: dict[str, tuple[Path, dict[str, Any]]], kind: str
) -> None:
    root, source = tables[kind]
    whole = spark.createDataFrame(pa.concat_tables(rows(file) for file in range(FILES)))
    for number, (where, files) in enumerate(CONDITIONS):
        spec = spec_over(source, ["v"], map={"select": ["k", "v", "s"], "where": where})
        job = prepare(RunDirectory(str(root / "runs" / str(number))), spec, DATE, str(root))
        read = {unit.path for unit in job.units}
        assert job.source.pinned
        assert job.source.pinned.left_out == FILES - len(read)
        if where in AT_MOST:
            assert len(read) <= files, where
        else:
            assert len(read) == files, where
        left = pa.concat_tables([rows(0).slice(0, 0).select(["s"]), *(_texts(path) for path in read)])["s"].to_pylist()
        passed = {row["s"] for row in whole.where(where).select("s").collect()}
        assert passed <= set(left), where


@pytest.mark.long
@pytest.mark.usefixtures("spark")
def test_a_partition_tells_the_bounds_of_a_file_that_has_none(tmp_path: Path) -> None:
    """Iceberg keeps bounds of the first 100 columns, and of fewer ones if it is told so."""
    kinds = pa.schema([("k", pa.string()), ("v", pa.int64()), ("day", pa.date32()), ("at", pa.timestamp("us", "UTC")),
                       ("wall", pa.timestamp("us"))])  # fmt: skip
    table = iceberg_table(tmp_path, kinds)
    with table.update_spec() as update:
        update.add_identity("v")
        update.add_identity("day")
        update.add_field("at", DayTransform(), "at_day")
        update.add_field("wall", HourTransform(), "wall_hour")
    table = lake(tmp_path).load_table("db.clicks")
    since = (START.date() - dt.date(1970, 1, 1)).days
    for file in range(FILES):
        moment = START + dt.timedelta(days=file, hours=5, minutes=30)
        row = {"k": "a", "v": file, "day": moment.date(), "at": moment, "wall": moment.replace(tzinfo=None)}
        days = since + file
        append(table, data_file(table, pa.Table.from_pylist([row], kinds), Record(file, days, days, 24 * days + 5)))
    append(table, data_file(table, pa.Table.from_pylist([{"k": "n"}], kinds), Record(None, None, None, None)))
    of_each = [
        ("v = 3", 1), ("day = DATE '2026-11-03'", 1), ("day < '2026-11-03'", 2), ("at >= '2026-11-06'", 1),
        ("at > TIMESTAMP '2026-11-05 05:30:00'", 2), ("at < TIMESTAMP '2026-11-02 00:00:00'", 1),
        ("wall >= '2026-11-05 05:59:59'", 2), ("wall >= '2026-11-05 06:00:00'", 1),
        ("wall < '2026-11-01 05:00:00'", 0), ("v >= 2 AND day <= '2026-11-04'", 2),
    ]  # fmt: skip
    for number, (where, files) in enumerate(of_each):
        spec = spec_over(
            {"format": "iceberg", "path": "local.db.clicks"}, ["v"], map={"select": ["k", "v"], "where": where}
        )
        job = prepare(RunDirectory(str(tmp_path / f"run{number}")), spec, DATE, str(tmp_path))
        assert len(job.units) in {files, files + 1}, where  # perhaps with the file of nulls


@pytest.mark.long
@pytest.mark.usefixtures("spark")
def test_a_widened_column_has_bounds_of_both_lengths(tmp_path: Path) -> None:
    table = iceberg_table(tmp_path, pa.schema([("k", pa.string()), ("v", pa.int32())]))
    table.append(pa.table({"k": ["a"], "v": pa.array([-5], pa.int32())}))
    with table.update_schema() as update:
        update.update_column("v", LongType())
    table.append(pa.table({"k": ["b"], "v": pa.array([2**40])}))
    source = {"format": "iceberg", "path": "local.db.clicks"}
    for number, (where, key) in enumerate([("v < 0", -5), ("v > 5", 2**40)]):
        spec = spec_over(source, ["v"], map={"select": ["k", "v"], "where": where})
        job = prepare(RunDirectory(str(tmp_path / f"run{number}")), spec, DATE, str(tmp_path))
        (unit,) = job.units
        assert unit.rows == 1, key


def test_times_that_python_does_not_have_leave_nothing_out(tmp_path: Path) -> None:
    """One wrong time, of the year 20,000, is no reason not to read a table."""
    year_20_000 = 569_000_000_000_000_000
    odd = pa.table({"k": ["a", "b"], "at": pa.array([0, year_20_000], pa.timestamp("us", "UTC"))})
    asked = [Condition("at", ">", (Typed("timestamp", dt.datetime(2026, 1, 1)),))]  # noqa: DTZ001  # as they have times
    write_deltalake(str(tmp_path / "t"), odd)
    found, _ = delta_snapshot(Input(format="delta", path="t"), Part(DATE), str(tmp_path / "t"), asked)
    assert len(found.files) == 1


def test_an_unknown_bound_may_hold_anything(spark: SparkSession) -> None:
    conditions = conditions_of(spark, "v > 3 AND s = 'a'")
    kinds = {"v": "bigint", "s": "string"}
    assert possible(conditions, kinds, {"v": (None, None), "s": ("a", None)})
    assert possible(conditions, kinds, {})
    assert not possible(conditions, kinds, {"v": (None, 3)})
    assert not possible(conditions, kinds, {"s": ("b", None)})
    assert possible(conditions, {"v": "decimal(10,2)"}, {"v": (0, 1)})


def test_files_are_left_out_only_where_the_session_has_utc(spark: SparkSession) -> None:
    with session_settings(spark, {"spark.sql.session.timeZone": "Europe/Paris"}):
        assert conditions_of(spark, "at >= '2026-11-06 00:00:00'") == ()


@pytest.mark.long
@pytest.mark.usefixtures("spark")
def test_check_and_show_say_what_is_read_of_a_table(
    tables: dict[str, tuple[Path, dict[str, Any]]], tmp_path: Path
) -> None:
    root, source = tables["delta"]
    spec = spec_over(source, ["v"], map={"select": ["k", "v"], "where": "v >= 100"})
    assert ", version 5, 5 files left out by map.where: " in check_job(spec, "spec", Part(DATE), str(root))
    run = RunDirectory(str(tmp_path / "run"))
    prepare(run, spec, DATE, str(root))
    told = Console(width=200, record=True, file=io.StringIO())
    run_view.show(run, told)
    assert ", version 5, 5 files left out by map.where: " in told.export_text()
    assert run_summary.as_object(run)["input_snapshot"] == "5"
