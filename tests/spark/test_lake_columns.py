"""Columns of tables that files have by another name, of another type, or not at all."""

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.types import LongType
from pyspark.sql import SparkSession

from skewless.errors import InputError, SkewlessError
from skewless.run.directory import RunDirectory
from skewless.spec.input import Input
from skewless.spec.part import Part
from skewless_spark.prepare.prepare import prepare
from skewless_spark.session.versions import local_frame
from skewless_spark.sources.lake.delta import snapshot_of
from skewless_spark.sources.lake.table_inputs import Condition, conditions_of
from skewless_spark.sources.unit_reading import read_units
from tests.lake_tables import append, data_file, iceberg_table, with_fields
from tests.spark.scenario import DATE, session_settings
from tests.spark.test_lake_inputs import ICEBERG, KV, delta_log, frozen, numbered, read, spec_over


def test_a_delta_table_that_maps_its_columns_by_ids_is_refused(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "t"), numbered(2), configuration={"delta.columnMapping.mode": "id"})
    with pytest.raises(InputError, match=r"columns that are mapped by name, or not at all, but got .*mode = id"):
        frozen({"format": "delta", "path": "t"}, tmp_path, "v")


def of(column: str) -> dict[str, Any]:
    return {"a": {"function": "first", "column": column}}


NESTED = pa.table({"k": ["a"], "s": pa.array([{"x": 1, "y": "one"}]), "v": [5]})


def test_a_field_that_left_a_structure_of_iceberg_and_came_back_is_another_one(tmp_path: Path) -> None:
    table = iceberg_table(tmp_path, NESTED.schema)
    append(table, data_file(table, NESTED))
    assert frozen(ICEBERG, tmp_path, aggregates=of("s.x")).source.columns["s"] == "struct<x:bigint,y:string>"
    with table.update_schema() as change:
        change.delete_column(("s", "x"))
    with table.update_schema() as change:
        change.add_column(("s", "x"), LongType())
    with table.update_schema() as change:
        change.move_first(("s", "x"))
    frozen(ICEBERG, tmp_path, "v")
    with pytest.raises(SkewlessError, match=r"whose fields are others in "):
        frozen(ICEBERG, tmp_path, aggregates=of("s"))


def test_fields_that_a_delta_table_maps_and_variants_are_no_columns_of_a_job(
    spark: SparkSession, tmp_path: Path
) -> None:
    write_deltalake(str(tmp_path / "t"), NESTED, configuration={"delta.columnMapping.mode": "name"})
    given = {"format": "delta", "path": "t"}
    frozen(given, tmp_path, "v")
    with pytest.raises(SkewlessError, match="whose fields the table maps"):
        frozen(given, tmp_path, aggregates=of("s"))
    rows = spark.sql("SELECT 'a' AS k, 1 AS v, parse_json('{}') AS j, array(parse_json('1')) AS l, struct(1 AS x) AS s")
    rows.write.parquet(str(tmp_path / "variants"))
    given = {"path": "variants"}
    frozen(given, tmp_path, aggregates=of("s.x"))
    for name in ("j", "l"):
        with pytest.raises(SkewlessError, match="variant"):
            frozen(given, tmp_path, aggregates=of(name))


#: Types of Iceberg, and a default as its metadata has it.
DEFAULTS: dict[str, tuple[str, Any, Any]] = {
    "number": ("long", 7, 7), "text": ("string", "ü/%", "ü/%"), "flag": ("boolean", True, True),
    "money": ("decimal(9,2)", "14.20", Decimal("14.20")), "day": ("date", "2026-01-02", dt.date(2026, 1, 2)),
    "at": ("timestamptz", "2026-01-02T03:04:05.000006+00:00", dt.datetime(2026, 1, 2, 3, 4, 5, 6)),  # noqa: DTZ001
    "part": ("double", 0.1, 0.1),
}  # fmt: skip


@pytest.mark.long
def test_rows_that_are_older_than_a_column_of_iceberg_have_its_default(spark: SparkSession, tmp_path: Path) -> None:
    def add(fields: list[dict[str, Any]]) -> None:
        for number, (name, (kind, default, _)) in enumerate(DEFAULTS.items(), start=10):
            fields.append({"id": number, "name": name, "type": kind, "required": True, "initial-default": default})

    table = iceberg_table(tmp_path, KV)
    append(table, data_file(table, numbered(2)))
    with_fields(tmp_path, add)
    names = [name for name in DEFAULTS if name != "flag"]
    read_in = read(spark, frozen(ICEBERG, tmp_path, "v", *names))
    assert read_in == [(key, value, *(DEFAULTS[name][2] for name in names)) for key, value in read(
        spark, frozen(ICEBERG, tmp_path, "v"))]  # fmt: skip
    for one in (
        {"name": "bytes", "type": "binary", "required": False, "initial-default": "0a0b"},
        {"name": "must", "type": "long", "required": True},
    ):
        with_fields(tmp_path, lambda fields, one=one: fields.append({"id": 20, **one}))  # type: ignore[misc]
        with pytest.raises(InputError, match=f"the column '{one['name']}', of which each row of the table has a value"):
            frozen(ICEBERG, tmp_path, "v")
        with_fields(tmp_path, lambda fields: fields.pop())


@pytest.mark.long
def test_bytes_that_partition_a_delta_table_are_a_text_or_refused(spark: SparkSession, tmp_path: Path) -> None:
    rows = pa.table({"k": ["a"], "p": pa.array([b"hello"])})
    write_deltalake(str(tmp_path / "t"), rows, partition_by=["p"])
    given, select = {"format": "delta", "path": str(tmp_path / "t")}, {"select": ["k", "string(p) AS s"]}
    with pytest.raises(InputError, match="expected values of partitions that are known here, but got the bytes"):
        frozen(given, tmp_path, "s", map=select)  # deltalake escapes each byte, and does not read that back
    with delta_log(tmp_path / "t") as lines:
        for line in lines:
            if "add" in line:
                line["add"]["partitionValues"] = {"p": "hello"}  # as Spark writes them
    job = frozen(given, tmp_path, "s", map=select)
    assert [row[1] for row in read_units(spark, job, range(len(job.units)), ["k", "s"]).collect()] == ["hello"]


US, BERLIN = pa.timestamp("us", "UTC"), -2_524_521_600_000_000  # 00:53:28 of 1890 there
#: The value of a file, its bounds as another program writes them, a comparison, and how many files may pass it.
BOUNDS: dict[str, tuple[pa.DataType, Any, str, str, str, Any, int]] = {
    "a text that was cut off": (pa.string(), "ab\U0001f608", "ab", "ab\ufffd", ">=", "ab\U0001f608", 1),
    "an escaped character of plane 2": (pa.string(), "\U00020001", "a", "\U00020001", "=", "\U00020001", 1),
    "milliseconds": (US, 10**15 + 999, "2001-09-09T01:46:40Z", "2001-09-09T01:46:40Z", ">", 10**15 + 998, 1),
    "milliseconds before 1970": (US, -500, "1970-01-01T00:00:00Z", "1970-01-01T00:00:00Z", "<", -499, 1),
    "an offset that was cut": (US, BERLIN, "1890-01-01T00:53:28+00:53", "1890-01-01T00:53:28+00:53", "=", BERLIN, 1),
    "a time above": (US, 10**15, "2001-09-08T18:46:40-07:00", "2001-09-08T18:46:40-07:00", ">", 10**15 + 1_000, 0),
}  # fmt: skip


@pytest.mark.parametrize("name", BOUNDS)
def test_a_bound_that_another_program_has_cut_leaves_no_row_out(tmp_path: Path, name: str) -> None:
    kind, value, low, high, comparison, asked, files = BOUNDS[name]
    write_deltalake(str(tmp_path / "t"), pa.table({"v": pa.array([value], kind)}))
    stats = {"numRecords": 1, "minValues": {"v": low}, "maxValues": {"v": high}, "nullCount": {"v": 0}}
    with delta_log(tmp_path / "t") as lines:
        for line in lines:
            if "add" in line:
                line["add"]["stats"] = json.dumps(stats)
    wanted = Condition("v", "string" if kind == pa.string() else "timestamp", comparison, (asked,))  # type: ignore[arg-type]
    given = Input(format="delta", path="t")
    assert len(snapshot_of(given, Part(DATE), "", str(tmp_path / "t"), lambda _: [wanted]).files) == files


# Files of a table that hold no row of ``map.where`` are left out, and no row is lost by it.

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
    ("NOT v > 30", 2),
    ("v > 30.5", 5),
    ("v = '21'", 1),
    (f"v IN (21, {', '.join(map(str, range(1000, 1020)))})", 1),
    ("s IN ('', 'a', 'z', '0', '1', '2', '3', '4', '5', '6', '7', '8')", 0),
    ("s >= 'e'", 2),
    ("s = 'c-longlonglonglong'", 6),
    ("day = DATE '2026-11-03'", 1),
    ("day >= '2026-11-03' AND day < '2026-11-05'", 2),
    ("at >= '2026-11-06'", 1),
    ("at >= TIMESTAMP '2026-11-06 00:19:00'", 1),
    ("at > TIMESTAMP '2026-11-05 00:19:00.999998'", 2),
    ("wall < DATE '2026-11-02'", 1),
    ("date(at) = '2026-11-02'", 1),
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
    return pq.read_table(path, columns=["s"], partitioning=None)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["iceberg", "delta", "iceberg parted", "delta parted"])
def test_conditions_leave_out_files_by_their_bounds_and_no_row(
    spark: SparkSession, tables: dict[str, tuple[Path, dict[str, Any]]], kind: str
) -> None:
    root, source = tables[kind]
    whole = local_frame(spark, pa.concat_tables(rows(file) for file in range(FILES)))
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


def test_times_that_python_does_not_have_leave_nothing_out(tmp_path: Path) -> None:
    year_20_000 = 569_000_000_000_000_000
    odd = pa.table({"k": ["a", "b"], "at": pa.array([0, year_20_000], pa.timestamp("us", "UTC"))})
    new_year = int(dt.datetime(2026, 1, 1, tzinfo=dt.UTC).timestamp()) * 1_000_000
    wanted = [Condition("at", "timestamp", ">", (new_year,))]
    write_deltalake(str(tmp_path / "t"), odd)
    found = snapshot_of(Input(format="delta", path="t"), Part(DATE), "", str(tmp_path / "t"), lambda _: wanted)
    assert len(found.files) == 1


def test_files_are_left_out_only_where_the_session_has_utc(spark: SparkSession) -> None:
    with session_settings(spark, {"spark.sql.session.timeZone": "Europe/Paris"}):
        assert conditions_of(spark, "at >= '2026-11-06 00:00:00'", {"at": "timestamp"}) == ()
