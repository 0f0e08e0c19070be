"""A sample of the keys, as it is read from files."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

from skewless.documents.job import Job, Source, Unit
from skewless.spec.input import Input
from skewless_spark.prepare.key_sample import SAMPLED_ROWS, SAMPLED_UNITS, sample_keys
from skewless_spark.sources.listing import list_input
from tests.unit import synthetic


def job(rows: Sequence[int]) -> Job:
    """A frozen job over files with the column ``key``."""
    return synthetic.job(rows).model_copy(update={"source": Source(columns={"key": "string"})})


def _json(table: pa.Table, path: Path) -> None:
    path.write_text("".join(f'{{"n": 1, "key": "{key}"}}\n' for key in table["key"].to_pylist()))


def _gz(table: pa.Table, path: Path) -> None:
    with gzip.open(path, "wb") as opened:
        pa_csv.write_csv(table, opened)


WRITERS: dict[str, Callable[[pa.Table, Path], None]] = {
    "rows.parquet": pq.write_table,
    "rows.orc": orc.write_table,
    "rows.csv": pa_csv.write_csv,
    "rows.csv.gz": _gz,
    "rows.json": _json,
}


@pytest.mark.parametrize("name", WRITERS)
def test_files_of_each_format_are_sampled_each_range_from_its_own_rows(tmp_path: Path, name: str) -> None:
    """Without a sample a first small stage would have to find the heavy keys, at the price of a second one."""
    rows = 40_000
    table = pa.table({"n": [1] * rows, "key": [f"key-{number * 4 // rows}" for number in range(rows)]})
    WRITERS[name](table, tmp_path / name)
    given = Input.model_validate({"path": str(tmp_path), "format": name.split(".")[1]})
    listing = list_input(given, str(tmp_path), share=0.25)
    frozen = job([1]).model_copy(update={"units": listing.units, "source": listing.source})
    sample = sample_keys(frozen)
    assert sample is not None
    assert sample.texts is not None
    found = dict(zip(sample.texts, sample.counts.tolist(), strict=True))
    if name.endswith("gz"):  # cannot be cut: its first rows stand for it, fewer than it has if it compresses well
        assert set(found) == {"key-0"}
    else:
        assert found == {f"key-{number}": pytest.approx(rows / 4, rel=0.1) for number in range(4)}


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


def test_a_partition_has_as_many_rows_in_the_sample_as_it_has_a_part_of_the_input(tmp_path: Path) -> None:
    sizes = (3 * SAMPLED_ROWS, SAMPLED_ROWS)
    for number, rows in enumerate(sizes):
        pq.write_table(pa.table({"key": [f"key-{number}"] * rows}), tmp_path / f"{number}.parquet")
    units = tuple(
        Unit(path=str(tmp_path / f"{number}.parquet"), rows=rows, size_bytes=1) for number, rows in enumerate(sizes)
    )
    sample = sample_keys(job(sizes).model_copy(update={"units": units, "input_path": str(tmp_path)}))
    assert sample is not None
    assert sample.texts is not None
    assert dict(zip(sample.texts, sample.counts.tolist(), strict=True)) == {
        "key-0": SAMPLED_ROWS * 3 // 4,
        "key-1": SAMPLED_ROWS // 4,
    }
    assert sample.spread == 1.0, "there are no other partitions"


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
