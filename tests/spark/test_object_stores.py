"""Whole runs with input, run directory and states on an S3 server, where Spark has no file system for it."""

import datetime as dt
import io
import random
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from skewless.errors import RunDirectoryError, SkewlessError, SpecError
from skewless.run.directory import RunDirectory
from skewless.spec.part import Part
from skewless.spec.spec import JobSpec
from skewless_spark.engines.stage import run_stage
from skewless_spark.entries.pipeline import run_pipeline
from skewless_spark.prepare.prepare import prepare
from skewless_spark.session.session import spark_reads
from skewless_spark.session.spark_errors import sentence_for
from skewless_spark.sources.worker_files import read_in_workers, write_in_workers
from tests.broken_wire import Fault, broken_wire
from tests.object_stores import ObjectServer, as_client, object_server
from tests.spark.scenario import DATE, all_as_clients, as_rows, reduce_job, spec_of, window_of, write_input
from tests.spark.test_pipeline import AGGREGATES, skewed
from tests.tiers import mostly_long

#: Exact, native and in Python; the second ones can be merged over parts.
AGGREGATED: dict[str, object] = {**AGGREGATES, "median": {"function": "exact_median", "column": "value"}}
OF_PARTS: dict[str, object] = {**AGGREGATES, "values": {"function": "value_counts", "column": "value"}}


@pytest.fixture
def place(spark: SparkSession, s3: ObjectServer, tmp_path: Path) -> Iterator[str]:
    """A folder of its own in the bucket, under a scheme that Hadoop has a name for, and no classes."""
    with all_as_clients(spark, s3.environment):
        yield f"s3a://lake/{tmp_path.name}"


def put_input(s3: ObjectServer, place: str, table: pa.Table, files: int = 6) -> str:
    step = -(-table.num_rows // files)
    for number in range(files):
        out = io.BytesIO()
        pq.write_table(table.slice(number * step, step), out)
        s3.put(f"{place.removeprefix('s3a://lake/')}/part-{number:03d}.parquet", out.getvalue())
    return place


def far_spec(path: str, tmp_path: Path, aggregates: dict[str, object] = AGGREGATED, **fields: object) -> JobSpec:
    return spec_of(tmp_path, "key", aggregates, **{"input": {"path": path}, "output": {"path": "out"}, **fields})


def result_of(run: RunDirectory) -> pa.Table:
    files = run.committed("result").of_kind("result")
    return pa.concat_tables(pq.read_table(io.BytesIO(run.fs.cat_file(f"{run.root}/{file.path}"))) for file in files)


def local_result(
    spark: SparkSession, tmp_path: Path, table: pa.Table, aggregates: dict[str, object] = AGGREGATED, **fields: object
) -> list[tuple[object, ...]]:
    path = write_input(tmp_path / "near" / "input", table, files=6)
    run, _ = reduce_job(spark, spec_of(path, "key", aggregates, **fields), tmp_path / "near" / "run")
    return as_rows(result_of(run))


def test_spark_has_no_file_system_for_buckets_here(spark: SparkSession) -> None:
    """Else these tests would test Spark's."""
    assert [spark_reads(spark, f"{scheme}://lake/x") for scheme in ("s3", "s3a", "gs", "abfss")] == [False] * 4
    assert spark_reads(spark, "/lake/x")
    assert spark_reads(spark, "hdfs://node/x")


def test_where_spark_has_a_file_system_it_reads_and_writes_itself(spark: SparkSession) -> None:
    name = "fs.gcs.impl"
    spark.conf.set(name, "org.apache.hadoop.fs.RawLocalFileSystem")
    try:
        assert spark_reads(spark, "gcs://lake/x")
    finally:
        spark.conf.unset(name)


def test_a_format_that_only_spark_writes_is_refused_by_the_first_stage(
    spark: SparkSession, s3: ObjectServer, place: str, tmp_path: Path
) -> None:
    run = RunDirectory(f"{place}/run")
    path = put_input(s3, f"{place}/in", skewed(600))
    prepare(run, far_spec(path, tmp_path, output={"path": "out", "format": "csv"}), DATE, str(tmp_path))
    with pytest.raises(RunDirectoryError, match=r"for a result as csv, but got .*; publish parquet, or give Spark"):
        run_stage(spark, run, 0)


@pytest.mark.parametrize("engine", mostly_long(["staged", "combine", "bypass"], "staged"))
def test_a_run_in_a_bucket_has_the_result_of_one_in_folders(
    spark: SparkSession, s3: ObjectServer, place: str, tmp_path: Path, engine: str
) -> None:
    table, routing = skewed(6_000), {"reducers": 3, "waves": [1, 3]}
    path = put_input(s3, f"{place}/in", table)
    run = RunDirectory(f"{place}/run")
    prepare(run, far_spec(path, tmp_path, engine=engine, routing=routing), DATE, str(tmp_path))
    run_pipeline(spark, run)
    assert as_rows(result_of(run)) == local_result(spark, tmp_path, table, engine=engine, routing=routing)
    published = next((tmp_path / "out").glob(f"*{DATE}*"))
    assert as_rows(pq.read_table(published)) == as_rows(result_of(run))
    assert run.job().input_path == path
    texts = b"".join(s3.content(key) for key in s3.keys(tmp_path.name) if key.endswith(".json"))
    for secret in (s3.environment["AWS_SECRET_ACCESS_KEY"], s3.environment["AWS_ACCESS_KEY_ID"]):
        assert secret.encode() not in texts


@pytest.mark.long
def test_windows_of_hours_and_of_all_that_there_are(
    spark: SparkSession, s3: ObjectServer, place: str, tmp_path: Path
) -> None:
    hours = ["2026-10-24T23", "2026-10-25T02", "2026-10-25T02b", "2026-10-25T03"]
    rows = {hour: skewed(2_000).slice(number * 500, 500) for number, hour in enumerate(hours)}

    def put(folder: str, name: str, table: pa.Table) -> None:
        out = io.BytesIO()
        pq.write_table(table, out)
        s3.put(f"{place.removeprefix('s3a://lake/')}/in/{folder}/{name}.parquet", out.getvalue())

    def night(hour: str, window: int | str) -> RunDirectory:
        part = Part.named(hour)
        spec = far_spec(
            f"{place}/in/{{date}}/h{{hour}}", tmp_path, OF_PARTS, routing={"waves": [1]},
            window={"length": window, "states": f"{place}/states"},
            schedule={"part": "hour", "timezone": "Europe/Zurich"},
        )  # fmt: skip
        run = RunDirectory(f"{place}/run-{hour}-{window}")
        prepare(run, spec, part.date, str(tmp_path), hour=part.hour)
        run_pipeline(spark, run)
        return run

    for hour, table in rows.items():
        put(hour.replace("T", "/h"), "on-time", table)
    for stray in ("latest/h00", "2026-10-25/h24", "2026-10-25/h05b"):
        put(stray, "stray", skewed(10))
    run = night(hours[2], "all")
    assert sum(report.admitted_rows for report in run.reports()) == 1_500
    late = skewed(2_100).slice(2_000)
    put(hours[0].replace("T", "/h"), "late", late)
    run = night(hours[3], "all")
    assert sum(report.admitted_rows for report in run.reports()) == 600
    window = window_of(run)
    assert [part.name for part in window.parts] == hours
    assert window.missing == ("2026-10-25T00", "2026-10-25T01")
    everything = pa.concat_tables([late, *rows.values()])
    assert as_rows(result_of(run)) == local_result(spark, tmp_path, everything, OF_PARTS)
    # The same states serve another window: the hour that comes twice, and the one after it.
    run = night(hours[3], 3)
    assert sum(report.admitted_rows for report in run.reports()) == 0
    last = pa.concat_tables([rows[hour] for hour in hours[1:]])
    assert as_rows(result_of(run)) == local_result(spark, tmp_path / "last", last, OF_PARTS)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2))
def test_a_run_over_a_wire_that_breaks_ends_right_or_with_one_sentence(
    spark: SparkSession, s3: ObjectServer, place: str, tmp_path: Path, seed: int
) -> None:
    table, drawn, said = skewed(2_000), random.Random(seed), list[str]()
    path = put_input(s3, f"{place}/in", table)
    share = (0.02, 0.2)[seed]

    def faults(_number: int, _request: str) -> Fault:
        kinds: list[Fault] = ["lose answer", "lose request", "late", "500", "503"]
        return drawn.choice(kinds) if drawn.random() < share else "none"

    wanted = local_result(spark, tmp_path, table, routing={"waves": [1]})
    with broken_wire(s3.port, faults) as wire, all_as_clients(spark, s3.behind(wire.port)):
        for _ in range(3):
            run = RunDirectory(f"{place}/run")
            try:
                prepare(run, far_spec(path, tmp_path, routing={"waves": [1]}), DATE, str(tmp_path))
                run_pipeline(spark, run)
                break
            except (SkewlessError, PySparkException) as err:
                said.append(sentence_for(err))
    assert all(one.endswith(".") and "\n" not in one for one in said)
    with as_client(s3.environment):
        assert as_rows(result_of(RunDirectory(f"{place}/run"))) == wanted
    assert any(what != "none" for _, what in wire.seen)


TYPES = pa.table(
    {
        "text": ["a\0b", None, "é"],
        "octets": pa.array([b"", None, b"\xff"], pa.binary()),
        "small": pa.array([1, None, -1], pa.int8()),
        "large": pa.array([1 << 62, None, -1], pa.int64()),
        "real": [float("nan"), None, -0.0],
        "price": pa.array([Decimal("1.23"), None, Decimal("-9.99")], pa.decimal128(20, 2)),
        "flag": [True, None, False],
        "day": [dt.date(1, 1, 1), None, dt.date(9999, 12, 31)],
        "moment": pa.array([dt.datetime(1677, 1, 1, tzinfo=dt.UTC), None, dt.datetime(2262, 5, 1, tzinfo=dt.UTC)],
                           pa.timestamp("us", "UTC")),
        "plain": pa.array([-1, None, 1 << 50], pa.int64()).cast(pa.timestamp("us")),
        "list": [[1, None], None, []],
        "nested": [{"a": [{"b": 1}], "c": None}, None, {"a": None, "c": "x"}],
        "named": pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int64())),
    }
)  # fmt: skip


@pytest.mark.long
def test_what_workers_write_both_they_and_spark_read_back(
    spark: SparkSession, s3: ObjectServer, place: str, tmp_path: Path
) -> None:
    pq.write_table(TYPES, tmp_path / "types.parquet")
    frame = spark.read.parquet(str(tmp_path / "types.parquet"))
    for number in range(3):  # three row groups in a file, and empty partitions
        assert len(write_in_workers(frame.repartition(3 + number), f"{place}/{number}")) <= 3 + number
    [path] = write_in_workers(frame.coalesce(1), f"{place}/one")
    key = path.removeprefix("s3a://lake/")
    (tmp_path / "back.parquet").write_bytes(s3.content(key))
    back = read_in_workers(spark, frame.schema, [(path, len(s3.content(key)))])
    wanted = [repr(row) for row in frame.collect()]
    assert back.schema == frame.schema
    assert [repr(row) for row in back.collect()] == wanted
    by_spark = spark.read.parquet(str(tmp_path / "back.parquet"))
    assert by_spark.schema == frame.schema
    assert [repr(row) for row in by_spark.collect()] == wanted


@pytest.mark.long
def test_a_struct_that_is_null_is_kept_though_its_fields_are_never_null(spark: SparkSession, place: str) -> None:
    """Such are the states of some sketches, of keys that have no value."""
    struct = "named_struct('a', id, 'l', array(named_struct('b', id)), 'm', map('k', named_struct('c', id)))"
    frame = spark.range(7).selectExpr("id", f"IF(id % 3 = 0, NULL, {struct}) AS state").coalesce(1)
    assert not frame.schema["state"].dataType["a"].nullable  # type: ignore[index]  # of a struct
    [path] = write_in_workers(frame, place)
    back = read_in_workers(spark, frame.schema, [(path, 1)])
    assert back.sort("id").collect() == frame.collect()
    assert back.where("state IS NULL").count() == 3


def test_a_result_is_published_into_a_folder_of_a_bucket(
    spark: SparkSession, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    table = pa.table({"key": ["a", "b", "a"], "value": [1, 2, 3]})
    total = {"total": {"function": "sum", "column": "value"}}
    path = write_input(tmp_path / "input", table, files=1)
    with object_server("moto", tmp_path_factory.mktemp("moto")) as moto, all_as_clients(spark, moto.environment):
        for given, words in (
            ({"path": "s3a://lake/marts/totals"}, "expected allow_gap: true, or table, with a folder in a bucket"),
            ({"path": "totals", "allow_gap": True}, "expected a folder in a bucket with allow_gap"),
        ):
            with pytest.raises(SpecError, match=words):
                prepare(RunDirectory(str(tmp_path / "refused")), spec_of(path, "key", total, output=given), DATE, "")
        output: dict[str, object] = {"path": "s3a://lake/marts/totals", "allow_gap": True, "files": 1}
        spec = spec_of(path, "key", total, output=output, engine="combine", routing={"waves": [1], "reducers": 1})
        for name in ("first", "again"):
            run = RunDirectory(str(tmp_path / name))
            prepare(run, spec, DATE, str(tmp_path))
            run_pipeline(spark, run)
        day = f"marts/totals/date={DATE}/"
        [manifest, file] = moto.keys(day)
        assert manifest == f"{day}_published"
        assert as_rows(pq.read_table(io.BytesIO(moto.content(file)))) == [("'a'", "4"), ("'b'", "2")]
        far = far_spec("s3://lake/marts", tmp_path, {**total}, output=output)
        with pytest.raises(SpecError, match="expected a folder apart from the input s3://lake/marts"):
            prepare(RunDirectory(str(tmp_path / "inside")), far, DATE, "")
