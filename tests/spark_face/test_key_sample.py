"""A sample of the keys, as it is read from files."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from skewless.job import Unit
from skewless_spark.key_sample import SAMPLED_ROWS, sample_keys
from tests.core.synthetic import job


def test_each_range_of_a_large_file_is_sampled_from_its_own_rows(tmp_path: Path) -> None:
    path = tmp_path / "one.parquet"
    ranges, rows = 4, SAMPLED_ROWS
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
