"""``output.sort``: each file is sorted, the files follow each other, and the rows are those of an unsorted run."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from skewless.errors import SpecError
from skewless.run.directory import RunDirectory
from skewless_spark.prepare.prepare import prepare
from tests.spark.scenario import DATE, as_rows, reduce_job, result_of, run_job, spec_of, write_input
from tests.tiers import mostly_long

NATIVE = {"n": "count", "most": {"function": "max", "column": "user"}}
PYTHON = {"n": "count", "seen": {"function": "value_counts", "column": "word"}}


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """6,000 rows of 500 keys and null; ``most`` is null for every seventh key."""
    rng = np.random.default_rng(31)
    numbers = rng.integers(0, 500, 6_000).tolist()
    keys = [None if number == 3 else f"k{number:03d}" for number in numbers]
    users = [None if number % 7 == 0 else number % 13 for number in numbers]
    words = [f"w{number % 4}" for number in numbers]
    table = pa.table({"key": pa.array(keys), "user": pa.array(users, pa.int64()), "word": words})
    return write_input(tmp_path_factory.mktemp("keyed") / "input", table)


def in_spec_order(row: dict[str, Any]) -> tuple[Any, ...]:
    """``most desc, key``: null after all values where they descend, before them where they ascend."""
    most = (row["most"] is None, -(row["most"] or 0))
    return (*most, row["key"] is not None, row["key"] or "")


ROUTINGS: dict[str, dict[str, Any]] = {
    "combine": {},
    "bypass": {"reducers": 4, "first_plan": ["last_run", "sample"], "waves": [20]},
    "staged": {"reducers": 4, "waves": [4, 16], "stage_overhead": 0},
}


@pytest.mark.parametrize("engine", mostly_long(ROUTINGS, "combine"))
def test_files_are_sorted_and_follow_each_other(spark: SparkSession, keyed: Path, tmp_path: Path, engine: str) -> None:
    output: dict[str, Any] = {"path": str(tmp_path / "published"), "files": 3}
    fields: dict[str, Any] = {"engine": engine, "routing": ROUTINGS[engine], "output": output}
    plain, _ = reduce_job(spark, spec_of(keyed, "key", NATIVE, **fields), tmp_path / "plain")
    output["sort"] = ["most desc", "key"]
    run, _, _ = run_job(spark, spec_of(keyed, "key", NATIVE, **fields), tmp_path / "sorted")
    assert as_rows(result_of(run)) == as_rows(result_of(plain))
    assert run.committed("result").counts == plain.committed("result").counts
    published = sorted((tmp_path / "published" / f"date={DATE}").glob("part-*"))
    assert len(published) == 3
    files = [pq.read_table(file, partitioning=None).to_pylist() for file in published]
    assert all(files)
    rows = [row for file in files for row in file]
    assert rows == sorted(rows, key=in_spec_order)
    assert rows != sorted(rows, key=lambda row: str(row["key"]))


@pytest.mark.parametrize(
    ("sort", "got"),
    [(["nothing"], "'nothing'"), (["n", "n desc"], "'n' twice"), (["date"], "'date'"), (["n down"], "'n down'")],
)
def test_a_result_is_sorted_by_columns_that_it_has(keyed: Path, sort: list[str], got: str) -> None:
    sentence = f"expected columns of the result in output.sort, each once, but got {got}"
    with pytest.raises(SpecError, match=sentence):
        spec_of(keyed, "key", NATIVE, output={"path": "out", "sort": sort})


def test_a_result_is_not_sorted_by_lists(spark: SparkSession, keyed: Path, tmp_path: Path) -> None:
    del spark
    given = spec_of(keyed, "key", PYTHON, output={"path": "out", "sort": ["seen"]})
    with pytest.raises(
        SpecError, match=r"field output\.sort: expected columns of one value each, but got 'seen' of type array<struct"
    ):
        prepare(RunDirectory(str(tmp_path / "run")), given, DATE, str(tmp_path))
