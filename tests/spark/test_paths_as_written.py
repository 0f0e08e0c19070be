"""An input on an object store is listed, read and told of by the path that its user wrote. No Spark."""

import datetime as dt
import io
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skewless.errors import InputError
from skewless.run.directory import RunDirectory
from skewless.spec.input import Input
from skewless.spec.reading import parse_spec
from skewless_airflow.observability.lineage import dataset_name
from skewless_spark.prepare.earlier_runs import siblings
from skewless_spark.prepare.freezing import freeze
from skewless_spark.prepare.prepare import prepare
from skewless_spark.sources.formats.input_files import as_spark_says
from skewless_spark.sources.identity import require_unchanged
from skewless_spark.sources.listing import list_input
from skewless_spark.sources.worker_files import read_unit
from tests.object_stores import ObjectServer, as_client, object_server

#: The server has S3's interface only; ``gs`` and ``abfss`` differ in the client's address alone.
PLACES = ("s3a://lake", "s3://lake")
DAY = dt.date(2026, 3, 1)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectServer]:
    with object_server("moto", tmp_path_factory.mktemp("moto")) as found:
        yield found


@pytest.fixture(autouse=True)
def _client(server: ObjectServer) -> Iterator[None]:
    with as_client(server.environment):
        yield


def _parquet(table: pa.Table) -> bytes:
    out = io.BytesIO()
    pq.write_table(table, out)
    return out.getvalue()


def _fill(server: ObjectServer, folder: str) -> None:
    for number in range(2):
        server.put(f"{folder}/{number}.parquet", _parquet(pa.table({"k": ["a", "b"], "v": [1, 2]})))


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("asked", ["/all/clicks", "/all/clicks/*.parquet", "/all/clicks/0.parquet"])
def test_every_unit_has_the_path_that_spark_is_to_read(server: ObjectServer, place: str, asked: str) -> None:
    _fill(server, "all/clicks")
    listing = list_input(Input(path=f"{place}{asked}"), f"{place}{asked}")
    paths = [unit.path for unit in listing.units]
    assert paths == [f"{place}/all/clicks/{number}.parquet" for number in range(len(paths))]
    assert len(paths) == (1 if asked.endswith("0.parquet") else 2)
    assert as_spark_says(paths[0]) == paths[0]
    assert next(read_unit(listing.units[0], listing.source, ["v"])).column("v").to_pylist() == [1, 2]


@pytest.mark.parametrize("place", PLACES)
def test_a_job_of_hours_on_an_object_store_is_frozen_and_held_to_its_files(
    server: ObjectServer, tmp_path: Path, place: str
) -> None:
    _fill(server, "hours/2026-10-25/02b")
    spec = parse_spec(f"""
name: clicks
schedule: {{cron: "5 * * * *", timezone: Europe/Zurich, part: hour-1}}
input: {{path: "{place}/hours/{{date}}/{{hour:%H}}"}}
key: k
aggregates: {{n: count}}
output: {{path: {tmp_path}/out}}
""")
    run = RunDirectory(f"{place}/{tmp_path.name}/clicks/one")
    job = prepare(run, spec, dt.date(2026, 10, 25), "/", hour="02b")
    assert job.input_path == f"{place}/hours/2026-10-25/02b"
    assert {unit.path for unit in job.units} == {f"{job.input_path}/{number}.parquet" for number in range(2)}
    require_unchanged(job, range(len(job.units)))
    assert prepare(run, spec, dt.date(2026, 10, 25), "/", hour="02b") == job
    RunDirectory(f"{place}/{tmp_path.name}/clicks/two").write_once("job.json", job)
    assert siblings(run) == [f"{place}/{tmp_path.name}/clicks/two"]
    assert dataset_name(job.input_path)[0] == place.replace("s3a", "s3")


@pytest.mark.parametrize("place", PLACES)
def test_what_is_wrong_with_a_file_names_it_as_its_user_would(server: ObjectServer, tmp_path: Path, place: str) -> None:
    folder = f"{tmp_path.name}/in"
    _fill(server, folder)
    spec = parse_spec(
        f"{{name: x, input: {{path: '{place}/{folder}'}}, key: k, aggregates: {{n: count}}, output: {{path: o}}}}"
    )
    job = freeze(spec, DAY, str(tmp_path), "spec")
    file = f"input file {place}/{folder}/1.parquet"
    server.delete(f"{folder}/1.parquet")
    with pytest.raises(InputError, match=f"{file} is gone"):
        require_unchanged(job, range(2))
    server.put(f"{folder}/1.parquet", b"no parquet")
    with pytest.raises(InputError, match=f"^{file}: expected a readable Parquet file"):
        freeze(spec, DAY, str(tmp_path), "spec")
    server.put(f"{folder}/1.parquet", _parquet(pa.table({"k": [1]})))
    with pytest.raises(InputError, match=f"^{file}: expected column 'k' of type string"):
        freeze(spec, DAY, str(tmp_path), "spec")
    server.put(f"{folder}/b:c.parquet", b"")
    with pytest.raises(InputError, match=f"^input file {place}/{folder}/b:c.parquet: expected a file name in UTF-8"):
        freeze(spec, DAY, str(tmp_path), "spec")
    with pytest.raises(InputError, match=f"input {place}/nowhere: "):
        list_input(Input(path="x"), f"{place}/nowhere")
