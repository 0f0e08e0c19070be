"""Tables in a bucket as inputs, without Spark: their files, their deleted rows, their compactions."""

import datetime as dt
import io
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from skewless.errors import InputError
from skewless.spec.input import Input
from skewless.spec.part import Part
from skewless_spark.sources.lake.delta import rewrites_of, snapshot_of
from skewless_spark.sources.lake.snapshot import deleted_positions
from skewless_spark.sources.lake.table_inputs import LakeTable
from tests.broken_wire import broken_wire
from tests.object_stores import ObjectServer, as_client, object_server

TABLE = "s3://lake/clicks"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectServer]:
    folder = tmp_path_factory.mktemp("localbucket")
    with object_server("localbucket", folder) as found, as_client({**found.environment, "AWS_ALLOW_HTTP": "true"}):
        yield found


def test_footers_and_compactions_of_a_table_are_read_in_its_bucket(server: ObjectServer) -> None:
    for number in range(3):
        write_deltalake(TABLE, pa.table({"k": ["a", "b"], "v": [number, number]}), mode="append")
    DeltaTable(TABLE).optimize.compact()
    given = Input.model_validate({"format": "delta", "path": TABLE})
    snapshot = snapshot_of(given, Part(dt.date(2026, 11, 20)), "", TABLE)
    (unit,) = LakeTable(snapshot, "").listing(0.01).units
    assert unit.rows == 6
    assert unit.path.startswith(f"{TABLE}/")
    assert server.content(unit.path.removeprefix("s3://lake/"))
    ((before, after),) = rewrites_of(snapshot, "")
    assert (len(before), len(after)) == (3, 1)


def test_the_deleted_rows_of_a_file_are_read_in_its_bucket(server: ObjectServer) -> None:
    file, out = f"{TABLE}/part-0.parquet", io.BytesIO()
    pq.write_table(pa.table({"file_path": [file, "another", file], "pos": [4, 3, 1]}), out)
    server.put("clicks/deletes.parquet", out.getvalue())
    assert deleted_positions(file, [f"{TABLE}/deletes.parquet"], {}).tolist() == [1, 4]


@pytest.mark.long
def test_a_table_whose_store_is_away_is_asked_as_often_as_other_inputs(
    server: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As shipped, deltalake would ask for three minutes."""
    monkeypatch.setattr("skewless.run.object_client.RETRIES", 2)
    away = {**server.environment, "AWS_ALLOW_HTTP": "true"}
    with broken_wire(server.port, lambda *_: "500") as wire, as_client({**away, **server.behind(wire.port)}):
        said = r"input s3://lake/clicks: expected a Delta table that .*, but got .*; see that its store answers"
        with pytest.raises(InputError, match=said):
            snapshot_of(
                Input.model_validate({"format": "delta", "path": TABLE}), Part(dt.date(2026, 11, 20)), "", TABLE
            )
        asked = [request for request, _ in wire.seen]
    assert max(asked.count(request) for request in asked) == 3
