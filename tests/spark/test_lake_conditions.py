"""Files of a table that hold no row of ``map.where`` are left out, and no row is lost by it."""

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from pyiceberg.partitioning import PartitionSpec
from pyspark.sql import SparkSession

from skewless.run.directory import RunDirectory
from skewless.spec.input import Input
from skewless.spec.part import Part
from skewless_spark.prepare.prepare import prepare
from skewless_spark.session.versions import local_frame
from skewless_spark.sources.lake.delta import snapshot_of
from skewless_spark.sources.lake.table_inputs import Condition, conditions_of
from tests.lake_tables import iceberg_table
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
    """One wrong time, of the year 20,000, is no reason not to read a table."""
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
