"""A night on the cluster with input and run directory on its object store, and the result in a table of its catalog."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import quote

import httpx
import obstore
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from obstore.store import from_url

from skewless.documents.ledger import balance
from skewless.publication.records import record_of
from skewless.run.directory import RESULT_STEP, RunDirectory
from skewless_airflow.run_store import safe_run_id
from skewless_lake.catalogs import open_catalog
from tests.airflow_rest import AirflowRest
from tests.cluster import running
from tests.cluster.running import Cluster, Home
from tests.cluster.started import client_of, home_of_tests, started
from tests.object_stores import as_client

pytestmark = [pytest.mark.long, pytest.mark.timeout(1500)]

JOB = "lake_words"
COUNTS = {"self": 9_000, "if": 2_000, "": 300, **{f"word-{n}": 1 + n % 30 for n in range(400)}}
SPEC = {
    "name": JOB,
    "input": {"path": "s3://lake/words"},
    "key": "word",
    "aggregates": {"occurrences": "count", "total": {"function": "sum", "column": "size"}},
    "engine": "combine",
    "routing": {"waves": [1], "reducers": 2},
    "output": {"format": "iceberg", "path": "lake.marts.words"},
}


class Night(NamedTuple):
    home: Home
    cluster: Cluster
    run_id: str
    state: str
    run: RunDirectory


@pytest.fixture(scope="module")
def night() -> Iterator[Night]:
    with (
        home_of_tests() as home,
        started(home, SPEC, {"SKEWLESS_RUNS": "s3://lake/runs"}) as cluster,
        as_client(client_of(home, cluster)),
    ):
        _put_words()
        with AirflowRest(cluster.url, running.USER, running.password(home)) as rest:
            rest.wait_for_dag(JOB, 120)
            rest.set_paused(JOB, False)
            run_id = rest.trigger(JOB)
            state = rest.await_end(JOB, run_id, 900)
        run = RunDirectory(f"s3://lake/runs/{JOB}/{safe_run_id(run_id)}")
        yield Night(home, cluster, run_id, state, run)


def _put_words() -> None:
    bucket = from_url("s3://lake", client_options={"allow_http": True})
    words = [word for word, rows in COUNTS.items() for _ in range(rows)]
    for number in range(4):
        mine, out = words[number::4], io.BytesIO()
        pq.write_table(pa.table({"word": mine, "size": [len(word) for word in mine]}), out)
        obstore.put(bucket, f"words/{number}.parquet", out.getvalue())


def test_the_table_has_the_counts_of_a_counter(night: Night) -> None:
    assert night.state == "success"
    catalog = open_catalog("lake", str(night.home.folder))
    table = catalog.load_table("marts.words")
    assert table.location().startswith("s3://lake/warehouse/")
    rows = table.scan().to_arrow().to_pylist()
    assert {row["word"]: row["occurrences"] for row in rows} == COUNTS
    assert {row["word"]: row["total"] for row in rows} == {word: len(word) * n for word, n in COUNTS.items()}
    record = record_of(night.run)
    assert record is not None
    assert (found := table.current_snapshot()) is not None
    assert record.snapshot == found.snapshot_id
    catalog.close()  # and its connections


def test_the_ledger_balances(night: Night) -> None:
    ledger = balance(night.run.job(), night.run.reports(), night.run.committed(RESULT_STEP).counts["rows"])
    assert (ledger.problems, ledger.input_rows) == ((), sum(COUNTS.values()))


def test_the_run_directory_is_on_the_object_store_and_not_in_the_volume(night: Night) -> None:
    assert night.run.job().input_path == "s3://lake/words"
    assert not (night.home.folder / "data" / "runs").exists()
    assert (night.home.folder / "objects" / "lake" / "runs" / JOB).is_dir(), "the volume of the object store"


def test_the_catalog_is_a_database_of_its_own_in_postgresql(night: Night) -> None:
    port, password = night.cluster.ports[5432], running.variables(night.home)["LAKE_PASSWORD"]
    with psycopg.connect(host="127.0.0.1", port=port, user="lake", dbname="lake", password=password) as connection:
        found = connection.execute("SELECT catalog_name, table_namespace, table_name FROM iceberg_tables").fetchall()
    assert found == [("lake", "marts", "words")]


@pytest.mark.parametrize("page", ["skew", "quality"])
def test_the_pages_of_the_run_are_read_from_the_object_store(night: Night, page: str) -> None:
    with httpx.Client(base_url=night.cluster.url, timeout=60, trust_env=False) as client:
        login = {"username": running.USER, "password": running.password(night.home)}
        token = client.post("/auth/token", json=login).raise_for_status().json()["access_token"]
        client.headers["Authorization"] = f"Bearer {token}"
        answer = client.get(f"/skewless/dags/{JOB}/runs/{quote(night.run_id, safe='')}/{page}")
    assert answer.status_code == 200
    assert f"{sum(COUNTS.values()):,}" in answer.text
