"""Input splits: filled as Spark fills them, and so that no slot waits for a few splits that are left over."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from skewless.bounds import makespan
from skewless.run.directory import RunDirectory
from skewless_spark.entries.pipeline import run_stages
from skewless_spark.prepare.prepare import prepare
from skewless_spark.sources.cutting import split_bytes
from tests.spark.scenario import DATE, spec_of


def as_spark_fills(sizes: list[int], limit: int) -> list[int]:
    """Next fit decreasing, file by file, as in Spark's ``FilePartition``."""
    found, current = list[int](), 0
    for size in sorted(sizes, reverse=True):
        if current and current + size > limit:
            found.append(current)
            current = 0
        current += size
    return [*found, current] if current else found


@pytest.mark.parametrize(
    ("files", "slots", "splits", "longest"),
    [(120, 8, 24, 15), (120, 2, 4, 60), (32, 2, 4, 16), (17, 8, 9, 3), (9, 4, 5, 3), (1000, 8, 16, 126)],
)
def test_alike_files_are_shared_out_evenly(files: int, slots: int, splits: int, longest: int) -> None:
    filled = as_spark_fills([1_000] * files, split_bytes([1_000] * files, 2 * slots, slots))
    assert len(filled) == splits
    assert makespan(np.array(filled), slots) == 1_000 * longest


@given(st.lists(st.integers(1, 10_000), min_size=1, max_size=200), st.integers(1, 9))
def test_it_ends_no_later_than_with_an_even_share(sizes: list[int], slots: int) -> None:
    splits = 2 * slots
    even = -(-sum(sizes) // splits)
    limit = split_bytes(sizes, splits, slots)
    if max(sizes) > even:
        assert limit == max(sizes), "files that are smaller than a piece should be are not cut"
        return
    filled = as_spark_fills(sizes, limit)
    assert makespan(np.array(filled), slots) <= makespan(np.array(as_spark_fills(sizes, even)), slots) / 0.99


@pytest.mark.long
def test_spark_makes_these_splits(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for number in range(30):
        table = pa.table({"key": [f"k{one % 7}" for one in range(1_000)]})
        pq.write_table(table, tmp_path / "in" / f"{number:02d}.parquet")
    routing = {"slots": 4}
    run = RunDirectory(str(tmp_path / "run"))
    prepare(
        run, spec_of(tmp_path / "in", "key", {"n": "count"}, engine="combine", routing=routing), DATE, str(tmp_path)
    )
    run_stages(spark, run)
    (report,) = run.reports()
    assert sorted(split.rows for split in report.splits) == [2_000, *[4_000] * 7]
    assert not [path for path in (tmp_path / "in").iterdir() if path.suffix != ".parquet"]
