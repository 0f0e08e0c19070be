"""Tables on an S3 server: the same rows as in a folder, and publications that do not undo each other."""

import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from skewless.errors import SpecError
from skewless.publication.records import record_of
from skewless.run.directory import RunDirectory
from skewless.spec.result import Window
from skewless_cli.views import states_location_of
from skewless_lake.catalogs import open_catalog
from skewless_spark.entries.pipeline import run_pipeline
from skewless_spark.prepare.prepare import prepare
from tests.lake.outputs import publish, seen
from tests.lake.test_outputs import DAY, plain, run, spec
from tests.object_stores import ObjectServer, as_client
from tests.spark.scenario import all_as_clients

OUTPUTS = {
    "iceberg": {"format": "iceberg", "path": "bucket.marts.clicks"},
    "delta": {"format": "delta", "path": "s3://lake/marts/clicks"},
}


@pytest.fixture
def root(s3: ObjectServer, spark: SparkSession, tmp_path: Path) -> Iterator[Path]:
    """A data root with a catalog whose tables are in the bucket; workers find the server, too."""
    with all_as_clients(spark, {**s3.environment, **s3.catalog("bucket", tmp_path / "bucket.db")}):
        yield tmp_path


def read(kind: str, root: Path) -> pa.Table:
    if kind == "iceberg":
        return open_catalog("bucket", str(root)).load_table("marts.clicks").scan().to_arrow()
    return pa.table(DeltaTable("s3://lake/marts/clicks").to_pyarrow_table())


@pytest.mark.long
@pytest.mark.parametrize("kind", OUTPUTS)
def test_a_table_in_a_bucket_has_the_rows_of_a_folder_and_is_an_input(
    spark: SparkSession, root: Path, kind: str
) -> None:
    run(spark, root, spec(root, {"path": "out"}), "folder")
    wanted = plain(pq.read_table(root / "out" / "date=2026-11-20", partitioning=None))
    run(spark, root, spec(root, OUTPUTS[kind]), kind)
    assert plain(read(kind, root)) == wanted
    run(spark, root, spec(root, {"path": "read"}, input=dict(OUTPUTS[kind]), aggregates={"rows": "count"}), "read")
    rows = pq.read_table(root / "read" / "date=2026-11-20", partitioning=None).to_pylist()
    assert {row["page"]: row["rows"] for row in rows} == dict.fromkeys((row["page"] for row in wanted), 1)


@pytest.mark.long
def test_a_data_root_in_a_bucket_has_the_runs_and_the_turns_of_a_table(
    spark: SparkSession, s3: ObjectServer, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a relative path means, and which run is the later one of a day: without a folder of this machine."""
    (away := root / "away").mkdir()
    monkeypatch.chdir(away)  # below which a URL that is taken for a path would be made
    given = spec(root, {"format": "delta", "path": "marts/visits"})
    for key in ("0.parquet", "1.parquet", "2.parquet", "3.parquet"):
        s3.put(f"data/in/{key}", (root / "in" / key).read_bytes())
    given = given.model_copy(update={"input": given.input.model_copy(update={"path": "in"})})
    first, second = (RunDirectory(f"s3://lake/data/runs/clicks/{name}") for name in ("first", "second"))
    for one in (first, second):
        prepare(one, given, DAY, "s3://lake/data/")
    job = first.job()
    assert (job.root, job.input_path) == ("s3://lake/data", "s3://lake/data/in")
    assert job.output_path == "delta+s3://lake/data/marts/visits"
    assert (job.turn, second.job().turn) == (1, 2)
    run_pipeline(spark, second)
    run_pipeline(spark, first)
    record = record_of(first)
    assert record is not None
    assert record.superseded is not None, "the first has drawn the lower turn"
    assert len(DeltaTable("s3://lake/data/marts/visits").to_pyarrow_table()) == 6
    assert any("/visits-" in key and "/turns/" in key for key in s3.keys("data/tables"))
    assert not list(away.rglob("*"))
    kept = given.model_copy(update={"window": Window(length=2)})
    assert states_location_of(kept, "spec", "s3://lake/data").startswith("s3://lake/data/tables/visits-")


def test_the_files_of_a_table_that_is_made_in_a_bucket_are_spread(s3: ObjectServer, tmp_path: Path) -> None:
    with as_client({**s3.environment, **s3.catalog("s3", tmp_path / "s3.db")}):
        publish(tmp_path / "run", tmp_path, "s3", "first", in_files=3)
        assert seen("s3", tmp_path) == {"2026-11-20": ["first"] * 3}
        paths = [task.file.file_path for task in open_catalog("s3", "").load_table("marts.clicks").scan().plan_files()]
    hashes = {path.removeprefix("s3://lake/warehouse/marts/clicks/data/").partition("/date=")[0] for path in paths}
    assert len(hashes) == 3
    assert all(re.fullmatch("[01]{4}/[01]{4}/[01]{4}/[01]{8}", one) for one in hashes)


def test_the_embedded_catalog_is_no_file_in_a_bucket() -> None:
    with pytest.raises(SpecError, match="catalog 'local': it is a file on a disk, and the data root is s3://lake/data"):
        open_catalog("local", "s3://lake/data")
