"""Values of many megabytes: as they come, among small ones, as keys, mapped, and in states."""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tests.spark.scenario import reduce_job, result_of, spec_of

_VALUES, _BYTES, _KEYS = 40, 60 << 20, 4


def wide(number: int) -> str:
    return f"{number:04d}" + chr(97 + number % 26) * _BYTES


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of wide values alone, and one of them behind many small ones in the same row group."""
    folder = tmp_path_factory.mktemp("wide")
    values = pa.chunked_array([pa.array([wide(number)]) for number in range(_VALUES)])
    for name, small in (("alone", 0), ("few", 100_000)):
        column = pa.chunked_array([pa.array([f"s{number}" for number in range(small)], pa.string()), *values.chunks])
        keys = [f"k{number % _KEYS}" for number in [*range(small), *range(_VALUES)]]
        (folder / name).mkdir()
        table = pa.table({"k": keys, "v": column})
        pq.write_table(
            table, folder / name / "x.parquet", row_group_size=1 << 20, use_dictionary=False, compression="zstd"
        )
    return folder


def digest(text: str) -> str:
    return hashlib.md5(text.encode()).hexdigest()


@pytest.mark.long
@pytest.mark.parametrize("source", ["alone", "few"])
@pytest.mark.parametrize(
    ("engine", "function"),
    [("combine", "max"), ("staged", "max"), ("bypass", "max")],
)
def test_40_values_of_60_mib_are_aggregated(
    spark: SparkSession, tmp_path: Path, sources: Path, source: str, engine: str, function: str
) -> None:
    waves = [1] if engine == "bypass" else [1, 1]
    spec = spec_of(
        sources / source, "k", {"rows": "count", "v": {"function": function, "column": "v"}}, engine=engine,
        routing={"reducers": 2, "waves": waves}, output={"path": str(tmp_path / "out"), "files": 2},
    )  # fmt: skip
    run, _ = reduce_job(spark, spec, tmp_path / "run")
    found = {row["k"]: (row["rows"], digest(row["v"])) for row in result_of(run).to_pylist()}
    small = 0 if source == "alone" else 100_000
    rows = Counter(f"k{number % _KEYS}" for number in [*range(small), *range(_VALUES)])
    last = {f"k{key}": wide(_VALUES - _KEYS + key) for key in range(_KEYS)}
    if small:
        last = {f"k{key}": max(f"s{number}" for number in range(key, small, _KEYS)) for key in range(_KEYS)}
    assert found == {key: (rows[key], digest(value)) for key, value in last.items()}


@pytest.mark.long
@pytest.mark.parametrize("source", ["alone", "few"])
def test_40_values_of_60_mib_go_to_python_and_back(
    spark: SparkSession, tmp_path: Path, sources: Path, source: str
) -> None:
    """A mapper takes them, and an aggregate in Python what it puts out."""
    spec = spec_of(
        sources / source, "token", {"rows": "count", "last": {"function": "latest", "column": "column"}},
        engine="staged", map={"mapper": "tokens", "column": "v", "pattern": "^[0-9]{4}"},
        routing={"reducers": 2, "waves": [1, 1]}, output={"path": str(tmp_path / "out"), "files": 2},
    )  # fmt: skip
    run, _ = reduce_job(spark, spec, tmp_path / "run")
    found = {row["token"]: row["rows"] for row in result_of(run).to_pylist()}
    assert found == {f"{number:04d}": 1 for number in range(_VALUES)}


def test_spark_writes_wide_rows_in_row_groups_of_some_bytes(spark: SparkSession, tmp_path: Path) -> None:
    """They are in memory until they are written."""
    values = pa.table({"v": [random.Random(number).randbytes(1 << 20) for number in range(24)]})
    rows = spark.createDataFrame(values).coalesce(1)
    rows.write.option("parquet.block.size", 4 << 20).parquet(str(tmp_path / "out"))
    (file,) = (tmp_path / "out").glob("*.parquet")
    footer = pq.read_metadata(file)
    assert footer.num_rows == 24
    assert max(footer.row_group(number).total_byte_size for number in range(footer.num_row_groups)) < 8 << 20
