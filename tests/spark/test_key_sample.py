"""A sample of the keys, as it is read from files."""

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from skewless.documents.job import Job, Source, Unit
from skewless_spark.prepare.prepare import SAMPLED_ROWS, SAMPLED_UNITS, sample_keys
from tests.unit import synthetic


def job(rows: Sequence[int]) -> Job:
    return synthetic.job(rows).model_copy(update={"source": Source(columns={"key": "string"})})


def test_each_range_of_a_large_file_is_sampled_from_its_own_rows(tmp_path: Path) -> None:
    path = tmp_path / "one.parquet"
    ranges, rows = 4, SAMPLED_ROWS // 4
    table = pa.table({"key": [f"key-{at // rows}" for at in range(ranges * rows)]})
    pq.write_table(table, path, row_group_size=rows // 2)
    units = tuple(
        Unit(path=str(path), rows=rows, size_bytes=1, span=(2 * number, 2 * number + 2)) for number in range(ranges)
    )
    frozen = job([rows] * ranges).model_copy(update={"units": units, "input_path": str(tmp_path)})
    sample = sample_keys(frozen)
    assert sample is not None
    assert sample.texts is not None
    assert dict(zip(sample.texts, sample.counts.tolist(), strict=True)) == {
        f"key-{number}": rows for number in range(ranges)
    }


def test_partitions_with_keys_of_their_own_are_seen_to_be_a_bad_sample(tmp_path: Path) -> None:
    table = pa.table({"key": [f"key-{number % 7}" for number in range(200)]})
    pq.write_table(table, tmp_path / "alike.parquet")
    alike = Unit(path=str(tmp_path / "alike.parquet"), rows=200, size_bytes=1)
    others = []
    for number in range(4):
        pq.write_table(pa.table({"key": [f"own-{number}"] * 200}), tmp_path / f"{number}.parquet")
        others.append(Unit(path=str(tmp_path / f"{number}.parquet"), rows=200, size_bytes=1))
    found = []
    for units in ([alike] * 4 * SAMPLED_UNITS, others * SAMPLED_UNITS):
        frozen = job([200] * len(units)).model_copy(update={"units": tuple(units), "input_path": str(tmp_path)})
        sample = sample_keys(frozen)
        assert sample is not None
        found.append(sample.spread)
    assert found[0] == 1.0
    assert found[1] > 50
