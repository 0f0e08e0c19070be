"""One more format of tables is one module and a line for the spec, for results and for inputs."""

import datetime as dt
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from skewless.spec.input import TABLES, Input, TableTraits
from skewless.spec.part import Part
from skewless.spec.result import Output
from skewless_lake.formats import FORMATS
from skewless_lake.publication import publish_run, roll_back
from skewless_lake.staged_files import OutputPart
from skewless_spark.sources.lake.table_inputs import READERS
from tests.lake import toy_format
from tests.lake.test_outputs import plain, run, spec

pytestmark = pytest.mark.long
NOW = dt.datetime(2026, 11, 21, 3, 0, tzinfo=dt.UTC)
OUTPUT = {"format": "toy", "path": "marts/toy"}


@pytest.fixture(autouse=True)
def _toy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TABLES, "toy", TableTraits())
    monkeypatch.setitem(FORMATS, "toy", toy_format.__name__)
    monkeypatch.setitem(READERS, "toy", toy_format.__name__)
    # These follow from TABLES when the modules are imported.
    monkeypatch.setitem(Input.FIELDS_OF, "toy", Input.FIELDS_OF["delta"])
    monkeypatch.setitem(Output.FIELDS_OF, "toy", Output.FIELDS_OF["delta"])


def published(root: Path) -> pa.Table:
    state = toy_format.states_of(root / "marts" / "toy")[-1]
    return pa.concat_tables(
        pq.read_table(root / "marts" / "toy" / path) for one in state.values() for path in one["files"]
    )


def test_a_run_publishes_in_a_table_of_it_goes_back_and_reads_it(spark: SparkSession, tmp_path: Path) -> None:
    run(spark, tmp_path, spec(tmp_path, {"path": "out"}), "folder")
    wanted = plain(pq.read_table(tmp_path / "out" / "date=2026-11-20", partitioning=None))
    first = run(spark, tmp_path, spec(tmp_path, OUTPUT), "first")
    assert plain(published(tmp_path)) == wanted
    assert publish_run(first, NOW).snapshot == 1, "once more publishes nothing"
    run(spark, tmp_path, spec(tmp_path, OUTPUT, aggregates={"rows": "count"}), "second")
    assert set(published(tmp_path).column_names) == {"page", "rows"}
    assert publish_run(first, NOW).snapshot == 1
    job = first.job()
    roll_back(OutputPart(job.spec.output, job.output_path, job.root, Part(job.date)), NOW)
    assert plain(published(tmp_path)) == wanted

    again = {"input": {"format": "toy", "path": "marts/toy"}, "aggregates": {"rows": "count"}}
    read = run(spark, tmp_path, spec(tmp_path, {"path": "read"}, **again), "read")
    assert read.job().source.pinned is not None
    assert str(read.job().source.pinned) == f"{tmp_path}/marts/toy, version 3"
    rows = pq.read_table(tmp_path / "read" / "date=2026-11-20", partitioning=None).to_pylist()
    assert {row["page"]: row["rows"] for row in rows} == dict.fromkeys((row["page"] for row in wanted), 1)
