"""Inputs that are Iceberg and Delta tables: every row that the libraries themselves read, at its place in its file."""

# Spark gives Python times without a zone.
# ruff: noqa: DTZ001

import datetime as dt
import json
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import (
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    TimestamptzType,
)
from pyspark.sql import SparkSession

from skewless.documents.job import Job
from skewless.errors import InputError
from skewless.routing.hashing import OFFSET_BITS
from skewless.run.directory import RunDirectory
from skewless.spec.reading import parse_spec
from skewless.spec.spec import JobSpec
from skewless_spark.engines.stage import run_stage
from skewless_spark.prepare.freezing import freeze
from skewless_spark.prepare.prepare import prepare
from skewless_spark.sources.unit_reading import read_units
from tests.lake_tables import append, data_file, delete_by_vector, delete_equal, delete_positions, iceberg_table, lake
from tests.spark.scenario import DATE, reduce_job, result_of

ICEBERG = {"format": "iceberg", "path": "local.db.clicks"}
KV = pa.schema([("k", pa.string()), ("v", pa.int64())])


def spec_over(source: dict[str, Any], columns: list[str], **fields: Any) -> JobSpec:
    raw = {
        "name": "lake", "input": source, "key": "k",
        "aggregates": {"n": "count", **{f"max_{one}": {"function": "max", "column": one} for one in columns}},
        "routing": {"first_plan": []}, "output": {"path": "published", "files": 2}, **fields,
    }  # fmt: skip
    return parse_spec(json.dumps(raw))


def frozen(source: dict[str, Any], root: Path, *columns: str, **fields: Any) -> Job:
    return freeze(spec_over(source, list(columns), **fields), DATE, str(root), "spec")


def read(spark: SparkSession, job: Job) -> list[tuple[Any, ...]]:
    columns = [*job.key_types, *job.column_types]
    rows = read_units(spark, job, range(len(job.units)), columns).collect()
    assert len({row["origin"] for row in rows}) == len(rows) == job.rows
    return in_order(tuple(row)[:-1] for row in rows)


def places(spark: SparkSession, job: Job) -> dict[Any, tuple[str, int]]:
    found = {}
    for row in read_units(spark, job, range(len(job.units)), [*job.key_types]).collect():
        unit = job.units[row["origin"] >> OFFSET_BITS]
        found[row["c0"]] = unit.path, unit.first_row + (row["origin"] & ((1 << OFFSET_BITS) - 1))
    return found


def in_order(rows: Any) -> list[tuple[Any, ...]]:
    return sorted(rows, key=repr)


def plainly(table: pa.Table, *columns: str) -> list[tuple[Any, ...]]:
    kept = [_naive(table[name]).to_pylist() for name in columns]
    return in_order(zip(*kept, strict=True))


def _naive(column: pa.ChunkedArray) -> pa.ChunkedArray:
    zoned = pa.types.is_timestamp(column.type) and column.type.tz
    return column.cast(pa.timestamp("us")) if zoned else column


def numbered(rows: int, first: int = 0) -> pa.Table:
    return pa.table({"k": [f"k{first + n:05d}" for n in range(rows)], "v": range(first, first + rows)}, schema=KV)


def clicks(root: Path, *files: pa.Table, group_rows: int = 1 << 20) -> tuple[Table, list[str]]:
    table = iceberg_table(root, KV)
    written = [data_file(table, rows, group_rows=group_rows) for rows in files]
    append(table, *written)
    return table, [file.file_path for file in written]


ZONED = pa.timestamp("us", "UTC")
KINDS = {
    "b": pa.array([True, None, False] * 40),
    "i": pa.array([1, -(2**31), None] * 40, pa.int32()),
    "l": pa.array([2**63 - 1, None, -5] * 40, pa.int64()),
    "f": pa.array([1.5, None, -0.25] * 40, pa.float32()),
    "d": pa.array([1e300, 0.1, None] * 40, pa.float64()),
    "m": pa.array([Decimal("12345678.90"), None, Decimal("-0.01")] * 40, pa.decimal128(10, 2)),
    "s": pa.array(["", None, "ü/=%20"] * 40),
    "day": pa.array([dt.date(1582, 10, 4), None, dt.date(2026, 11, 20)] * 40),
    "z": pa.array([dt.datetime(2026, 3, 29, 1, 30, 0, 1234), None, dt.datetime(1970, 1, 1)] * 40, ZONED),
    "w": pa.array([dt.datetime(2026, 3, 29, 2, 30), None, dt.datetime(1969, 12, 31, 23, 59)] * 40, pa.timestamp("us")),
    "x": pa.array([b"\0\xff", None, b""] * 40, pa.binary()),
}  # fmt: skip
WHOLE = pa.table({"k": [f"k{n:03d}" for n in range(120)], **KINDS})


@pytest.mark.parametrize("kind", ["iceberg", "delta"])
def test_a_run_over_a_table_gives_its_rows_of_all_types(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    nested = pa.array([[1, 2], None, []] * 40, pa.list_(pa.int64()))
    struct = pa.array([{"a": 1}, None, {"a": None}] * 40, pa.struct([("a", pa.int32())]))
    whole = WHOLE.append_column("list", nested).append_column("struct", struct)
    if kind == "iceberg":
        table = iceberg_table(tmp_path, whole.schema)
        table.append(whole.slice(0, 70))
        table.append(whole.slice(70))
        source, oracle = ICEBERG, table.scan().to_arrow()
    else:
        write_deltalake(str(tmp_path / "t"), whole.slice(0, 70))
        write_deltalake(str(tmp_path / "t"), whole.slice(70), mode="append")
        source, oracle = {"format": "delta", "path": "t"}, DeltaTable(str(tmp_path / "t")).to_pyarrow_table()
    names = [name for name in KINDS if name != "b"]
    select = ["k", *names, "int(b) AS b", "array_join(list, ',', 'null') AS list"]
    spec = spec_over(source, [*names, "b", "list"], map={"select": select})
    run, _ = reduce_job(spark, spec, tmp_path / "run")
    found = result_of(run)
    wanted = oracle.set_column(oracle.column_names.index("b"), "b", oracle["b"].cast(pa.int64()))
    told = pa.array([None if one is None else ",".join(map(str, one)) for one in oracle["list"].to_pylist()])
    wanted = wanted.set_column(oracle.column_names.index("list"), "list", told)
    assert pc.all(pc.equal(found["n"], 1)).as_py()
    columns = [*names, "b", "list"]
    assert plainly(found.rename_columns([one.removeprefix("max_") for one in found.column_names]), "k", *columns) == (
        plainly(wanted, "k", *columns)
    )


@pytest.mark.parametrize("kind", ["iceberg", "delta"])
def test_the_rows_that_a_table_claims_are_held_against_its_files(tmp_path: Path, kind: str) -> None:
    if kind == "iceberg":
        _, [path] = clicks(tmp_path, numbered(10))
        source = ICEBERG
    else:
        write_deltalake(str(tmp_path / "t"), numbered(10))
        [path], source = DeltaTable(str(tmp_path / "t")).file_uris(), {"format": "delta", "path": "t"}
    pq.write_table(pq.read_table(path.removeprefix("file://")).slice(0, 7), path.removeprefix("file://"))
    with pytest.raises(InputError, match=r"input file .*: expected 10 rows, as .* says, but got 7; repair the table"):
        frozen(source, tmp_path, "v")


def test_a_snapshot_is_chosen_by_its_id_or_by_the_end_of_a_day(tmp_path: Path) -> None:
    table, _ = clicks(tmp_path, numbered(10))
    append(table, data_file(table, numbered(5, 10)))
    old = table.snapshots()[0].snapshot_id
    assert frozen({**ICEBERG, "at": old}, tmp_path).rows == 10
    assert frozen({**ICEBERG, "at": "latest"}, tmp_path).rows == 15
    _committed_at(tmp_path, table, dt.datetime(2026, 11, 20, 23, 59, 59, 999000), dt.datetime(2026, 11, 21))
    assert frozen({**ICEBERG, "at": "{date}"}, tmp_path).rows == 10
    _committed_at(tmp_path, table, dt.datetime(2026, 11, 19), dt.datetime(2026, 11, 20, 23))
    assert frozen({**ICEBERG, "at": "{date}"}, tmp_path).rows == 15
    _committed_at(tmp_path, table, dt.datetime(2026, 11, 21), dt.datetime(2026, 11, 22))
    with pytest.raises(InputError, match="before the end of 2026-11-20 in UTC, but got none"):
        frozen({**ICEBERG, "at": "{date}"}, tmp_path)


def test_a_day_whose_last_snapshot_has_expired_is_not_taken_for_the_one_before(tmp_path: Path) -> None:
    table, _ = clicks(tmp_path, numbered(10))
    append(table, data_file(table, numbered(5, 10)))
    append(table, data_file(table, numbered(5, 15)))
    _, second, _ = (one.snapshot_id for one in table.snapshots())
    times = [dt.datetime(2026, 11, 19), dt.datetime(2026, 11, 20), dt.datetime(2026, 11, 21)]
    _committed_at(tmp_path, table, *times)
    assert frozen({**ICEBERG, "at": "{date}"}, tmp_path).rows == 15
    lake(tmp_path).load_table("db.clicks").maintenance.expire_snapshots().by_id(second).commit()
    with pytest.raises(InputError, match="but got one that has expired"):
        frozen({**ICEBERG, "at": "{date}"}, tmp_path)


def _committed_at(root: Path, table: Table, *times: dt.datetime) -> None:
    """Register the table anew, as if its snapshots had been committed at other times, in UTC."""
    catalog = lake(root)
    raw = json.loads(Path(catalog.load_table("db.clicks").metadata_location).read_text())
    for number, one in enumerate(times):
        at = int(one.replace(tzinfo=dt.UTC).timestamp() * 1000)
        raw["snapshots"][number]["timestamp-ms"] = at
        raw["snapshot-log"][number]["timestamp-ms"] = at
    raw["last-updated-ms"] = max(one["timestamp-ms"] for one in raw["snapshots"])
    raw["metadata-log"] = []
    changed = Path(table.location()) / "metadata" / f"changed-{len(list(root.rglob('changed-*')))}.metadata.json"
    changed.write_text(json.dumps(raw))
    catalog.drop_table("db.clicks")
    catalog.register_table("db.clicks", str(changed))


def test_rows_deleted_by_position_are_left_out_and_the_others_keep_their_places(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, paths = clicks(tmp_path, numbered(1000), numbered(500, 1000), group_rows=100)
    delete_positions(table, {paths[0]: [0, 999, 5, 5, 100, 250], paths[1]: [499]})
    delete_positions(table, {paths[0]: [5, 6]})
    oracle = table.scan().to_arrow()
    for cut in (64 << 20, 1 << 16):
        monkeypatch.setattr("skewless_spark.sources.cutting.CUT_BYTES", cut)
        job = frozen(ICEBERG, tmp_path, "v")
        assert job.rows == len(oracle) == 1493
        assert read(spark, job) == plainly(oracle, "k", "v")
        where = places(spark, job)
        assert where["k00007"] == (paths[0], 7)
        assert where["k00998"] == (paths[0], 998)
        assert where["k01498"] == (paths[1], 498)


@pytest.mark.long
def test_ranges_of_a_cut_file_lose_each_their_own_deleted_rows(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("skewless_spark.sources.cutting.LEAST_BYTES", 1 << 10)
    table, paths = clicks(tmp_path, numbered(20_000), group_rows=500)
    delete_positions(table, {paths[0]: [0, 499, 500, 7777, 19_999]})
    job = frozen(ICEBERG, tmp_path, "v")
    assert len(job.units) > 10
    assert sum(unit.rows for unit in job.units) == 19_995
    assert read(spark, job) == plainly(table.scan().to_arrow(), "k", "v")
    assert places(spark, job)["k07778"] == (paths[0], 7778)


def test_equality_deletes_are_refused_in_one_sentence(tmp_path: Path) -> None:
    table, _ = clicks(tmp_path, numbered(10))
    delete_equal(table, pa.table({"k": ["k00001"]}))
    with pytest.raises(InputError, match="rows are deleted by position, but got equality deletes"):
        frozen(ICEBERG, tmp_path)


def evolved(root: Path) -> Table:
    """A table whose columns were renamed, exchanged, widened, dropped and added between its files."""
    columns = [
        NestedField(1, "k", StringType()), NestedField(2, "a", StringType()), NestedField(3, "b", StringType()),
        NestedField(4, "i", IntegerType()), NestedField(5, "f", FloatType()), NestedField(6, "m", DecimalType(6, 2)),
        NestedField(7, "gone", LongType()), NestedField(8, "n", ListType(9, IntegerType(), element_required=False)),
    ]  # fmt: skip
    table = iceberg_table(root, Schema(*columns))
    old = pa.table({
        "k": ["old1", "old2"], "a": ["a1", None], "b": ["b1", "b2"], "i": pa.array([1, None], pa.int32()),
        "f": pa.array([1.5, 2.5], pa.float32()), "m": pa.array([Decimal("1.25"), None], pa.decimal128(6, 2)),
        "gone": [7, 7], "n": pa.array([[1], None], pa.list_(pa.int32())),
    })  # fmt: skip
    append(table, data_file(table, old))
    with table.update_schema() as update:
        update.rename_column("a", "c").delete_column("gone").update_column("i", LongType())
        update.update_column("f", DoubleType()).update_column("m", DecimalType(9, 2)).update_column(
            ("n", "element"), LongType()
        )
    with table.update_schema() as update:
        update.rename_column("b", "a")
    with table.update_schema() as update:
        # Its name was that of another column, which the old file has under it.
        update.rename_column("c", "b").add_column("gone", StringType()).add_column("new", TimestamptzType())
    new = pa.table({
        "k": ["new"], "b": ["a3"], "a": ["b3"], "i": [2**40], "f": [0.1],
        "m": pa.array([Decimal("1234567.25")], pa.decimal128(9, 2)), "n": pa.array([[2**40]], pa.list_(pa.int64())),
        "gone": ["back"], "new": pa.array([dt.datetime(2026, 1, 1)], ZONED),
    })  # fmt: skip
    append(table, data_file(table, new))
    return table


@pytest.mark.long
def test_columns_are_found_by_their_ids_after_all_changes_of_the_schema(spark: SparkSession, tmp_path: Path) -> None:
    table = evolved(tmp_path)
    columns = ["a", "b", "i", "f", "m", "gone", "new"]
    job = frozen(ICEBERG, tmp_path, *columns)
    assert read(spark, job) == plainly(table.scan().to_arrow(), "k", *columns)
    assert ("old1", "b1", "a1", 1, 1.5, Decimal("1.25"), None, None) in read(spark, job)
    # Rows are counted by a column that the old file does not have, too.
    assert [row[0] for row in read(spark, frozen({**ICEBERG}, tmp_path, "new"))] == ["new", "old1", "old2"]
    lists = frozen(ICEBERG, tmp_path, "n", map={"select": ["k", "explode(n) AS n"]})
    found = read_units(spark, lists, range(len(lists.units)), ["k", "n"]).collect()
    assert in_order((row[0], row[1]) for row in found) == [("new", 2**40), ("old1", 1)]


@pytest.mark.long
def test_an_older_snapshot_is_read_with_the_schema_it_was_committed_with(spark: SparkSession, tmp_path: Path) -> None:
    table = evolved(tmp_path)
    old = table.snapshots()[0].snapshot_id
    job = frozen({**ICEBERG, "at": old}, tmp_path, "a", "gone")
    assert read(spark, job) == plainly(table.scan(snapshot_id=old).to_arrow(), "k", "a", "gone")


def partitioned(root: Path) -> tuple[Table, PartitionSpec]:
    schema = Schema(
        NestedField(1, "k", StringType()), NestedField(2, "site", StringType()),
        NestedField(3, "at", TimestamptzType()), NestedField(4, "day", DateType()),
    )  # fmt: skip
    spec = PartitionSpec(
        PartitionField(2, 1000, IdentityTransform(), "site"), PartitionField(3, 1001, DayTransform(), "at_day"),
        PartitionField(1, 1002, BucketTransform(16), "k_bucket"), PartitionField(4, 1003, IdentityTransform(), "day"),
    )  # fmt: skip
    return iceberg_table(root, schema, spec), spec


@pytest.mark.long
def test_values_of_hidden_partitions_are_never_taken_for_those_of_columns(spark: SparkSession, tmp_path: Path) -> None:
    table, _ = partitioned(tmp_path)
    at = dt.datetime(2026, 11, 20, 13, 14, 15)
    rows = pa.table({"k": ["a", "b"], "site": ["ch", "ch"], "at": pa.array([at, at], ZONED),
                     "day": [dt.date(2026, 11, 20)] * 2})  # fmt: skip
    day = (dt.date(2026, 11, 20) - dt.date(1970, 1, 1)).days
    whole = data_file(table, rows, Record("ch", day, 3, day))
    # As files are that Hive wrote: columns that partition a table are not in them, and only its metadata knows them.
    bare = data_file(table, rows.select(["k"]), Record("ü/%", day + 1, 4, None))
    append(table, whole, bare)
    job = frozen(ICEBERG, tmp_path, "site", "at", "day")
    oracle = plainly(table.scan().to_arrow(), "k", "site", "at", "day")
    assert read(spark, job) == oracle
    assert ("a", "ü/%", None, None) in oracle
    assert ("a", "ch", at, dt.date(2026, 11, 20)) in oracle


@pytest.mark.long
def test_files_without_ids_are_read_by_the_tables_own_mapping_of_names(spark: SparkSession, tmp_path: Path) -> None:
    table = iceberg_table(tmp_path, KV)
    pq.write_table(numbered(10), tmp_path / "added.parquet")
    table.add_files([str(tmp_path / "added.parquet")])
    with table.update_schema() as update:
        update.rename_column("v", "w")
    job = frozen(ICEBERG, tmp_path, "w")
    assert read(spark, job) == plainly(table.scan().to_arrow(), "k", "w")
    assert [unit.inner for unit in job.units] == [{"w": "v"}]


@pytest.mark.long
def test_a_snapshot_that_expired_during_a_run_ends_it_with_one_sentence(spark: SparkSession, tmp_path: Path) -> None:
    _, paths = clicks(tmp_path, numbered(100), numbered(100, 100))
    run = RunDirectory(str(tmp_path / "run"))
    job = prepare(run, spec_over(ICEBERG, ["v"], engine="staged"), DATE, str(tmp_path))
    for path in paths:
        Path(path).unlink()
    first = job.units[min(job.admitted_units((0, 1)))].path
    with pytest.raises(InputError) as told:
        run_stage(spark, run, 0)
    assert str(told.value) == (
        f"input {job.source.pinned}: expected the files that the run was prepared with, but got input file "
        f"{first} is gone; nothing was committed; the snapshot has expired or was removed, so start a new run."
    )
    assert not run.exists("stages/0000/COMMIT.json")


def delta(folder: Path, rows: pa.Table, **options: Any) -> DeltaTable:
    vectors = {"delta.enableDeletionVectors": "true"}
    write_deltalake(str(folder), rows, configuration=vectors, **options)
    return DeltaTable(str(folder))


@contextmanager
def delta_log(folder: Path, number: int = 0) -> Iterator[list[dict[str, Any]]]:
    """The actions of a commit of a Delta table, which are written back as they are then."""
    log = folder / "_delta_log" / f"{number:020d}.json"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    yield lines
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))


def by_datafusion(folder: Path, *columns: str) -> list[tuple[Any, ...]]:
    """The rows as deltalake's own engine reads them, with deletion vectors applied."""
    query = f"SELECT {', '.join(columns)} FROM t"
    return plainly(pa.table(QueryBuilder().register("t", DeltaTable(str(folder))).execute(query).read_all()), *columns)


def paths_of(table: DeltaTable) -> list[str]:
    return pa.table(table.get_add_actions(flatten=True))["path"].to_pylist()


@pytest.mark.long
@pytest.mark.parametrize("in_file", [False, True], ids=["inline", "in files"])
def test_rows_deleted_by_a_vector_are_left_out_and_the_others_keep_their_places(
    spark: SparkSession, tmp_path: Path, in_file: bool
) -> None:
    folder = tmp_path / "t"
    rows = numbered(1000).append_column("site", pa.array(["a b/c=%"] * 600 + [None] * 400, pa.string()))
    table = delta(folder, rows, partition_by=["site"])
    for path in paths_of(table):
        delete_by_vector(folder, path, [0, 7, 7, 399], in_file=in_file)
    job = frozen({"format": "delta", "path": str(folder)}, tmp_path, "v", "site")
    oracle = by_datafusion(folder, "k", "v", "site")
    assert job.rows == len(oracle) == 994
    assert read(spark, job) == oracle
    assert DeltaTable(str(folder)).count() == 1000  # why no library's count is believed
    assert places(spark, job)["k00008"][1] == 8
    before = {unit.path: unit.version for unit in job.units}
    delete_by_vector(folder, paths_of(table)[0], [0, 7, 399, 20], in_file=in_file)
    now = frozen({"format": "delta", "path": str(folder)}, tmp_path, "v", "site")
    assert sum(before[unit.path] != unit.version for unit in now.units) == 1
    assert read(spark, now) == by_datafusion(folder, "k", "v", "site")
    # The pinned version has its own vectors.
    assert read(spark, job) == oracle


def test_rows_that_a_log_deletes_are_left_out_though_its_protocol_has_no_such_feature(
    spark: SparkSession, tmp_path: Path
) -> None:
    write_deltalake(str(tmp_path / "t"), numbered(10))
    delete_by_vector(tmp_path / "t", paths_of(DeltaTable(str(tmp_path / "t")))[0], [0, 7])
    job = frozen({"format": "delta", "path": "t"}, tmp_path, "v")
    assert (job.rows, len(read(spark, job))) == (8, 8)


@pytest.mark.long
def test_a_version_is_chosen_by_its_number(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "t"
    delta(folder, numbered(10))
    write_deltalake(str(folder), numbered(5, 10), mode="overwrite")
    assert read(spark, frozen({"format": "delta", "path": "t", "at": 0}, tmp_path, "v")) == plainly(
        numbered(10), "k", "v"
    )
    assert read(spark, frozen({"format": "delta", "path": "t"}, tmp_path, "v")) == plainly(numbered(5, 10), "k", "v")
    with pytest.raises(InputError, match="expected the version 7"):
        frozen({"format": "delta", "path": "t", "at": 7}, tmp_path)


@pytest.mark.parametrize("name", ["timestamp", "inCommitTimestamp"])
def test_a_version_is_chosen_by_the_end_of_a_day(tmp_path: Path, name: str) -> None:
    """By what the commits say of themselves: a table that was copied has the times of its copy."""
    folder, asked = tmp_path / "t", {"format": "delta", "path": "t", "at": "{date}"}
    delta(folder, numbered(10))
    write_deltalake(str(folder), numbered(5, 10), mode="append")

    def committed_at(*times: dt.datetime) -> None:
        for number, one in enumerate(times):
            with delta_log(folder, number) as lines:
                for about in (line["commitInfo"] for line in lines if "commitInfo" in line):
                    about["timestamp"] = 1
                    about[name] = int(one.replace(tzinfo=dt.UTC).timestamp() * 1000)

    committed_at(dt.datetime(2026, 11, 20, 23, 59, 59, 999000), dt.datetime(2026, 11, 21))
    job = frozen(asked, tmp_path)
    assert (job.rows, str(job.source.pinned)) == (10, f"{folder}, version 0")
    committed_at(dt.datetime(2026, 11, 19), dt.datetime(2026, 11, 20, 23))
    assert frozen(asked, tmp_path).rows == 15
    committed_at(dt.datetime(2026, 11, 21), dt.datetime(2026, 11, 22))
    with pytest.raises(InputError, match="before the end of 2026-11-20 in UTC, but got none"):
        frozen(asked, tmp_path)


def test_a_version_of_a_day_is_the_one_whose_own_commit_says_so(tmp_path: Path) -> None:
    """``DeltaTable.history`` leaves out commits that say nothing of themselves, and counts on as if there were none."""
    folder, asked = tmp_path / "t", {"format": "delta", "path": "t", "at": "{date}"}
    days = [dt.datetime(2026, 11, 19), None, dt.datetime(2026, 11, 20), dt.datetime(2026, 11, 21)]
    for number, day in enumerate(days):
        delta(folder, numbered(1, number), mode="append")
        with delta_log(folder, number) as lines:
            about = next(line for line in lines if "commitInfo" in line)
            if day is None:
                lines.remove(about)
            else:
                about["commitInfo"]["timestamp"] = int(day.replace(tzinfo=dt.UTC).timestamp() * 1000)
    assert str(frozen(asked, tmp_path).source.pinned) == f"{folder}, version 2"
    spec = spec_over(asked, [])
    with pytest.raises(InputError, match="but got the version 1, which does not say when; choose a version by"):
        freeze(spec, DATE - dt.timedelta(days=1), str(tmp_path), "spec")
    DeltaTable(str(folder)).create_checkpoint()
    for number in range(3):
        (folder / "_delta_log" / f"{number:020d}.json").unlink()
    with pytest.raises(InputError, match="but got none, or one that the log has no more; choose a later day"):
        frozen(asked, tmp_path)
