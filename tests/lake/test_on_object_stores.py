"""Tables on an S3 server: the same rows as in a folder, and publications that do not undo each other."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from skewless_lake.catalogs import open_catalog
from tests.lake.test_outputs import DAY, plain, run, spec
from tests.object_stores import ObjectServer, as_client, object_server

CATALOG = "PYICEBERG_CATALOG__BUCKET__"
OUTPUTS = {"iceberg": {"iceberg": "bucket.marts.clicks"}, "delta": {"delta": "s3://lake/marts/clicks"}}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectServer]:
    with object_server("localbucket", tmp_path_factory.mktemp("localbucket")) as found:
        yield found


@pytest.fixture
def root(server: ObjectServer, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A data root with a catalog whose tables are in the bucket; workers find the server, too."""
    monkeypatch.setenv(f"{CATALOG}URI", f"sqlite:///{tmp_path / 'bucket.db'}")
    monkeypatch.setenv(f"{CATALOG}WAREHOUSE", "s3://lake/warehouse")
    monkeypatch.setenv(f"{CATALOG}S3__ENDPOINT", server.endpoint)
    with as_client({**server.environment, "AWS_ALLOW_HTTP": "true"}):
        for name, value in server.environment.items():
            monkeypatch.setitem(spark.sparkContext.environment, name, value)
        yield tmp_path


def read(kind: str, root: Path) -> pa.Table:
    if kind == "iceberg":
        return open_catalog("bucket", str(root)).load_table("marts.clicks").scan().to_arrow()
    return pa.table(DeltaTable("s3://lake/marts/clicks").to_pyarrow_table())


@pytest.mark.parametrize("kind", [pytest.param("iceberg", marks=pytest.mark.long), "delta"])
def test_a_table_in_a_bucket_has_the_rows_of_a_folder(spark: SparkSession, root: Path, kind: str) -> None:
    run(spark, root, spec(root, {"path": "out"}), "folder")
    wanted = plain(pq.read_table(root / "out" / "date=2026-11-20", partitioning=None))
    for number, day in enumerate([DAY, DAY + dt.timedelta(days=1), DAY]):
        run(spark, root, spec(root, OUTPUTS[kind]), f"{kind}{number}", day)
    found = read(kind, root)
    assert len(found) == 2 * len(wanted)
    assert plain(found.filter(pa.compute.equal(found["date"], pa.scalar(DAY)))) == wanted
