"""Values of many megabytes: as they come, among small ones, as keys, mapped, and in states."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skewless.spec.spec import JobSpec
from tests.spark.scenario import spec_of
from tests.spark.wide_values import digest

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


def result_apart(spec: JobSpec, run: Path) -> list[dict[str, Any]]:
    """The rows of a result, of a Spark of its own; digests in place of long texts."""
    command = [sys.executable, "-m", "tests.spark.wide_values", spec.to_json(), str(run)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    rows: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return rows


@pytest.mark.long
@pytest.mark.parametrize(("engine", "source"), [("combine", "few"), ("staged", "alone")])
def test_40_values_of_60_mib_are_aggregated(tmp_path: Path, sources: Path, source: str, engine: str) -> None:
    spec = spec_of(
        sources / source, "k", {"rows": "count", "v": {"function": "max", "column": "v"}}, engine=engine,
        routing={"reducers": 2, "waves": [1, 1]}, output={"path": str(tmp_path / "out"), "files": 2},
    )  # fmt: skip
    found = {row["k"]: (row["rows"], row["v"]) for row in result_apart(spec, tmp_path / "run")}
    small = 0 if source == "alone" else 100_000
    rows = Counter(f"k{number % _KEYS}" for number in [*range(small), *range(_VALUES)])
    last = {f"k{key}": wide(_VALUES - _KEYS + key) for key in range(_KEYS)}
    if small:
        last = {f"k{key}": max(f"s{number}" for number in range(key, small, _KEYS)) for key in range(_KEYS)}
    assert found == {key: (rows[key], digest(value) if len(value) > _BYTES else value) for key, value in last.items()}


@pytest.mark.long
@pytest.mark.parametrize("source", ["few"])
def test_40_values_of_60_mib_go_to_python_and_back(tmp_path: Path, sources: Path, source: str) -> None:
    """A mapper takes them, and an aggregate in Python what it puts out."""
    spec = spec_of(
        sources / source, "token", {"rows": "count", "last": {"function": "exact_median", "column": "column"}},
        engine="staged", map={"mapper": "tokens", "column": "v", "pattern": "^[0-9]{4}"},
        routing={"reducers": 2, "waves": [1, 1]}, output={"path": str(tmp_path / "out"), "files": 2},
    )  # fmt: skip
    found = {row["token"]: row["rows"] for row in result_apart(spec, tmp_path / "run")}
    assert found == {f"{number:04d}": 1 for number in range(_VALUES)}
