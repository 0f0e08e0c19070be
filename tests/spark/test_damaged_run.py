"""Files of a run that were damaged, or changed with every checksum right: one sentence, and nothing is committed."""

import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from skewless.errors import RunDirectoryError
from skewless.planner.planner import plan_next_stage
from skewless.run.directory import RunDirectory
from skewless_spark.engines.stage import run_stage
from skewless_spark.entries.pipeline import run_stages
from skewless_spark.prepare.prepare import prepare
from skewless_spark.result.merge import merge_states
from skewless_spark.session.spark_errors import sentence_for
from tests.spark.scenario import DATE, spec_of, turn_bit_of_largest_page, write_input

pytestmark = pytest.mark.long
AGGREGATES = {
    "n": "count",
    "total": {"function": "sum", "column": "value"},
    "histogram": {"function": "streaming_histogram", "column": "value"},
}


@pytest.fixture(scope="module")
def half(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("damage")
    keys = np.random.default_rng(1).zipf(1.3, 4_000) % 300
    rows = pa.table({"key": [f"key-{number}" for number in keys], "value": np.arange(4_000)})
    path = write_input(place / "input", rows, files=8)
    spec = spec_of(path, "key", AGGREGATES, routing={"reducers": 2, "waves": [1, 3], "stage_overhead": 0})
    run = RunDirectory(str(place / "half"))
    prepare(run, spec, DATE, str(place))
    run_stage(spark, run, 0)
    run.decide(1, plan_next_stage)
    assert run.report(0).backlog_rows > 0, "or there is no backlog to damage"
    return place / "half"


@pytest.mark.parametrize(
    ("kind", "noted"), [("native", True), ("native", False), ("python", False), ("backlog", False)]
)
def test_a_bit_that_turned_within_the_data_is_found_where_it_is_read(
    spark: SparkSession, half: Path, tmp_path: Path, kind: str, noted: bool
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(half, folder)
    file = max(folder.glob(f"stages/0000/attempts/*/kind={kind}/*.parquet"), key=lambda path: path.stat().st_size)
    turn_bit_of_largest_page(file)
    if not noted:  # as on a store that keeps none
        (file.parent / f".{file.name}.crc").unlink()
    # Spark reads it, or Arrow on the driver: the sentence is the same.
    with pytest.raises((Py4JJavaError, RunDirectoryError)) as err:
        _go_on(spark, RunDirectory(str(folder)))
    assert sentence_for(err.value) == (
        f"{file}: expected the bytes that were written, but got others, by its checksum; restore it from a copy."
    )


def _go_on(spark: SparkSession, run: RunDirectory) -> None:
    run_stages(spark, run)
    merge_states(spark, run)
