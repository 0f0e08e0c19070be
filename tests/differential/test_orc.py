"""Spark's own scan reads ORC whose places do not matter, and gives the rows that pyarrow gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc
from pyspark.sql import SparkSession

from skewless.documents.job import Job
from skewless_spark.sources import cutting
from skewless_spark.sources.reading import scanned_bytes, source_rows
from tests.differential.rows import rows_of
from tests.differential.ways import job_of, types_of

CODECS = ("uncompressed", "zlib", "snappy", "zstd", "lz4")
FIRST_DAY, LAST_DAY = -719_162, 2_932_896
#: With the extremes of each type that Spark scans, and what only pyarrow may read.
COLUMNS = {
    "tiny": pa.array([-128, 127, None, 0], pa.int8()),
    "small": pa.array([-(1 << 15), (1 << 15) - 1, 0, None], pa.int16()),
    "whole": pa.array([-(1 << 31), (1 << 31) - 1, None, 0], pa.int32()),
    "big": pa.array([-(1 << 63), (1 << 63) - 1, 0, None], pa.int64()),
    "single": pa.array([float("nan"), float("-inf"), -0.0, 1.1], pa.float32()),
    "double": pa.array([float("nan"), 5e-324, -0.0, None], pa.float64()),
    "yes": pa.array([True, False, None, True]),
    "a 'dotted.näme', <in> [parts]": pa.array(["", " a \0", "\U0001f600", None]),
    "day": pa.array([FIRST_DAY, -141_428, LAST_DAY, None], pa.int32()).cast(pa.date32()),
    "money": pa.array([Decimal("-" + "9" * 18 + ".99"), Decimal("0.01"), None, Decimal("0.00")], pa.decimal128(20, 2)),
    "wide": pa.array([Decimal("9" * 38), Decimal("-" + "9" * 38), Decimal(0), None], pa.decimal128(38, 0)),
}
AT = pa.array([0, 1, None, -1]).cast(pa.timestamp("us", "UTC"))


def written(folder: Path, tables: Sequence[Mapping[str, pa.Array]], **options: object) -> Path:
    (folder / "in").mkdir()
    for number, columns in enumerate(tables):
        orc.write_table(pa.table(dict(columns)), folder / "in" / f"{number}.orc", **options)
    return folder / "in"


def job_over(folder: Path, *, cut: bool = False, **given: str) -> Job:
    section = {"path": str(folder), "format": "orc", **given}
    return job_of(section, types_of(section, folder.parent), folder.parent, cut=cut)


def scanned(spark: SparkSession, job: Job, *names: str) -> bool:
    return scanned_bytes(spark, job, range(len(job.units)), names, located=False) != []


def read(spark: SparkSession, job: Job, *names: str, located: bool = False) -> pa.Table:
    rows = source_rows(spark, job, range(len(job.units)), names, located=located)
    return rows.drop("origin").toArrow().rename_columns(list(names))


def require_equal(spark: SparkSession, job: Job, *names: str) -> None:
    assert scanned(spark, job, *names)
    assert rows_of(read(spark, job, *names), names) == rows_of(read(spark, job, *names, located=True), names)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("cut", [False, True])
def test_spark_scans_the_same_rows_of_all_types(spark: SparkSession, tmp_path: Path, codec: str, *, cut: bool) -> None:
    many = {name: pa.concat_arrays([column] * 5_000) for name, column in COLUMNS.items()}
    many["big"] = pa.array(np.random.default_rng(17).integers(-(1 << 63), (1 << 63) - 1, 20_000))
    job = job_over(written(tmp_path, [COLUMNS, many], compression=codec, stripe_size=1 << 16), cut=cut)
    assert len(job.units) > 2 if cut else len(job.units) == 2
    require_equal(spark, job, *COLUMNS)
    require_equal(spark, job, "big")
    assert not scanned_bytes(spark, job, range(1, len(job.units)), ["big"], located=True)


@pytest.mark.parametrize("new", [False, True])
def test_spark_scans_what_spark_wrote_in_either_calendar(spark: SparkSession, tmp_path: Path, *, new: bool) -> None:
    pq.write_table(pa.table(COLUMNS), tmp_path / "a.parquet")
    writer = spark.read.parquet(str(tmp_path / "a.parquet")).repartition(2).write
    writer.option("orc.proleptic.gregorian", value=new).orc(str(tmp_path / "in"))
    require_equal(spark, job_over(tmp_path / "in"), *COLUMNS)


def test_narrower_columns_and_other_orders_are_scanned(spark: SparkSession, tmp_path: Path) -> None:
    narrow = {"m": pa.array([-128, 127, None], pa.int8()), "x": pa.array([1.1, float("nan"), None], pa.float32())}
    narrow["d"] = pa.array([Decimal("9.99"), None, Decimal("-9.99")], pa.decimal128(3, 2))
    middle = {"x": narrow["x"].cast(pa.float64()), "m": pa.array([1 << 30, 0, None], pa.int32()), "d": narrow["d"]}
    wide = {
        "d": pa.array([Decimal("9" * 20 + ".99")], pa.decimal128(30, 2)),
        "x": pa.array([0.1]),
        "m": pa.array([1 << 62]),
    }
    job = job_over(written(tmp_path, [narrow, middle, wide]))
    assert job.source.columns == {"m": "bigint", "x": "double", "d": "decimal(30,2)"}
    require_equal(spark, job, "m", "x", "d")


@pytest.mark.parametrize(
    "columns",
    [
        {"_col0": COLUMNS["big"], "_col1": COLUMNS["whole"]},
        {"id": COLUMNS["big"], "at": AT},
        {"id": COLUMNS["big"], "a`b": COLUMNS["whole"]},
    ],
)
def test_columns_that_spark_reads_otherwise_are_left_to_pyarrow(
    spark: SparkSession, tmp_path: Path, columns: Mapping[str, pa.Array]
) -> None:
    job = job_over(written(tmp_path, [columns]))
    last = list(columns)[-1]
    assert not scanned(spark, job, last)
    assert read(spark, job, last)[last].to_pylist() == read(spark, job, last, located=True)[last].to_pylist()


def test_a_column_that_a_file_lacks_is_null(spark: SparkSession, tmp_path: Path) -> None:
    both = {"id": COLUMNS["big"], "m": COLUMNS["whole"]}
    job = job_over(written(tmp_path, [both, {"id": COLUMNS["big"]}]), schema="evolve")
    require_equal(spark, job, "id", "m")
    assert read(spark, job, "m")["m"].null_count == 5


@pytest.mark.parametrize("wide", [70_000, 0])
@pytest.mark.parametrize("codec", CODECS)
def test_texts_that_are_too_wide_for_a_scan_of_thousands_of_rows_are_left_to_pyarrow(
    spark: SparkSession, tmp_path: Path, codec: str, wide: int
) -> None:
    columns = {"id": pa.array(range(100)), "t": pa.array(["x" * wide] * 100)}
    job = job_over(written(tmp_path, [columns], compression=codec))
    assert scanned(spark, job, "t") == (not wide)
    assert scanned(
        spark, job_of({"path": job.input_path, "format": "orc"}, {"id": "bigint"}, tmp_path, cut=False), "id"
    )
    assert read(spark, job, "t")["t"].to_pylist() == ["x" * wide] * 100


@pytest.mark.parametrize("clump", [0, 200])
def test_the_texts_of_each_stripe_are_looked_at(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clump: int
) -> None:
    """Wide texts beside many short ones are no wide rows on average."""
    monkeypatch.setattr(cutting, "_WIDE_BYTES", 100_000)
    short = [f"{number:010d}" for number in range(20_000)]
    texts = pa.array([*short, *["x" * 1_000] * clump, *short])
    path = written(tmp_path, [{"t": texts}], stripe_size=1 << 14, batch_size=1_000)
    assert orc.ORCFile(path / "0.orc").nstripes > 8
    assert scanned(spark, job_over(path), "t") == (not clump)


def test_no_setting_makes_spark_read_columns_by_their_places(spark: SparkSession, tmp_path: Path) -> None:
    job = job_over(written(tmp_path, [{"id": COLUMNS["big"], "m": COLUMNS["whole"]}]))
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    hadoop.set("orc.force.positional.evolution", "true")
    try:
        require_equal(spark, job, "m")
    finally:
        hadoop.unset("orc.force.positional.evolution")
