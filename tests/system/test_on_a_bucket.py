"""Nights of a job in a whole Airflow, with all of its data on an S3 server and two Spark workers that share nothing.

Input, run directory, leases, turns and standing states are in the bucket, and so is the table of the result. The data
root is a URL: no process of a run is told of a folder that it could use instead. Each worker has a disk of its own,
which neither the other one nor the driver sees (``tests.spark_apart``).
"""

import datetime as dt
import io
import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from skewless.documents.ledger import balance
from skewless.publication.records import record_of
from skewless.run.directory import RESULT_STEP, RunDirectory
from skewless_airflow.run_store import safe_run_id
from skewless_lake.catalogs import open_catalog
from tests.object_stores import ObjectServer, as_client, object_server
from tests.served_airflow import ServedAirflow, dag_of, served_airflow
from tests.spark_apart import SparkApart, spark_apart

pytestmark = [pytest.mark.long, pytest.mark.timeout(1200)]

JOB, ROOT, TABLE = "bucket_words", "s3://lake/data", "marts.words"
DAYS = [dt.date(2026, 11, day) for day in (18, 19, 20)]
#: Rows of each word, on each day: one word has a third of them.
COUNTS = {"self": 3_000, "if": 900, "": 80, **{f"word-{n}": 1 + n % 40 for n in range(250)}}
SPEC = {
    "name": JOB,
    "input": {"path": "s3a://lake/words/{date}"},
    "key": "word",
    "aggregates": {"occurrences": "count", "total": {"function": "sum", "column": "size"}},
    "engine": "combine",
    "window": {"length": 2, "states": "s3://lake/states"},
    "routing": {"waves": [1], "reducers": 2},
    "output": {"format": "iceberg", "path": f"lake.{TABLE}"},
}


class Nights(NamedTuple):
    states: list[str]
    tasks: list[dict[str, str]]
    runs: list[RunDirectory]
    events: list[dict[str, Any]]
    server: ObjectServer
    spark: SparkApart
    folder: Path


@pytest.fixture(scope="module")
def nights(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nights]:
    folder = tmp_path_factory.mktemp("bucket")
    (driver := folder / "driver").mkdir()
    with object_server("localbucket", folder / "s3") as server:
        # The catalog stands for one of a server.
        of_client = {**server.environment, **server.catalog("lake", folder / "catalog.db")}
        with spark_apart(folder, tmp_path_factory.getbasetemp(), server.environment) as spark, as_client(of_client):
            put_days(server)
            spec = folder / "job.yaml"
            spec.write_text(json.dumps(SPEC))
            settings = {
                **of_client,
                "SKEWLESS_ROOT": ROOT,
                "TMPDIR": str(driver),
                "SPARK_LOCAL_DIRS": str(driver),
                "AIRFLOW_CONN_SPARK_DEFAULT": _connection(spark),
                "SPARK_SUBMIT_OPTS": _options(folder),
            }
            with served_airflow(folder, settings, dags={JOB: dag_of(spec)}) as airflow:
                runs = [f"night-{day}" for day in DAYS[1:]]
                states = [_night(airflow, run, day) for run, day in zip(runs, DAYS[1:], strict=True)]
                tasks = [airflow.rest.states(JOB, run) for run in runs]
                directories = [RunDirectory(f"{ROOT}/runs/{JOB}/{safe_run_id(run)}") for run in runs]
                told = airflow.rest.call("GET", "/assets/events?order_by=timestamp")["asset_events"]
                events = [event for event in told if event["partition_key"] is None]
                yield Nights(states, tasks, directories, events, server, spark, folder)


def _night(airflow: ServedAirflow, run: str, day: dt.date) -> str:
    airflow.rest.trigger(JOB, run, conf={"date": day.isoformat()})
    return airflow.await_end(JOB, run)


def _connection(spark: SparkApart) -> str:
    host, _, port = spark.master.rpartition(":")
    return json.dumps({"conn_type": "spark", "host": host, "port": int(port)})


def _options(folder: Path) -> str:
    both = {"minRegisteredResourcesRatio": "1.0", "maxRegisteredResourcesWaitingTime": "120s"}
    own = [f"-Dspark.scheduler.{name}={value}" for name, value in both.items()]
    return " ".join([logging_options(folder / "events"), "-Dspark.executor.memory=700m", *own])


def logging_options(folder: Path) -> str:
    """Options of a JVM, as ``SPARK_SUBMIT_OPTS`` has them, with which each application logs its events to a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    settings = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": folder.as_uri(),
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
        # The names of files in a plan are not cut.
        "spark.sql.maxMetadataStringLength": "100000",
    }
    given = os.environ.get("SPARK_SUBMIT_OPTS", "")
    return " ".join([given, *(f"-D{name}={value}" for name, value in settings.items())]).strip()


def put_days(server: ObjectServer) -> None:
    for number, day in enumerate(DAYS):
        words = [word for word, rows in COUNTS.items() for _ in range(rows + number)]
        for part in range(4):
            mine, out = words[part::4], io.BytesIO()
            sizes = pa.array([len(word) + number for word in mine], pa.int64())
            pq.write_table(pa.table({"word": mine, "size": sizes}), out)
            server.put(f"words/{day}/{part}.parquet", out.getvalue())


def counted(server: ObjectServer, last: int) -> dict[str, tuple[int, int]]:
    occurrences, totals = Counter[str](), Counter[str]()
    for day in DAYS[last - 1 : last + 1]:
        for key in server.keys(f"words/{day}/"):
            for row in pq.read_table(io.BytesIO(server.content(key))).to_pylist():
                occurrences[row["word"]] += 1
                totals[row["word"]] += row["size"]
    return {word: (occurrences[word], totals[word]) for word in occurrences}


def test_both_nights_end_well(nights: Nights) -> None:
    assert nights.states == ["success"] * 2, nights.tasks


@pytest.mark.parametrize("last", [1, 2])
def test_the_table_has_the_rows_that_plain_python_counts(nights: Nights, last: int) -> None:
    table = open_catalog("lake", ROOT).load_table(TABLE)
    assert table.location().startswith("s3://lake/warehouse/")
    rows = table.scan().to_arrow()
    mine = rows.filter(pc.equal(rows["date"], pa.scalar(DAYS[last]))).to_pylist()
    assert {row["word"]: (row["occurrences"], row["total"]) for row in mine} == counted(nights.server, last)
    assert len(mine) == len(COUNTS)


def test_the_ledgers_balance(nights: Nights) -> None:
    day_rows = [sum(COUNTS.values()) + number * len(COUNTS) for number in range(3)]
    for run, rows in zip(nights.runs, (day_rows[0] + day_rows[1], day_rows[2]), strict=True):
        found = run.committed(RESULT_STEP).counts["rows"]
        ledger = balance(run.job(), run.reports(), found, run.part_lines())
        assert (ledger.problems, ledger.input_rows) == ((), rows)


def test_the_second_night_reads_its_own_day_and_builds_on_the_states_of_the_first(nights: Nights) -> None:
    read = [sum(report.admitted_rows for report in run.reports()) for run in nights.runs]
    assert read[1] == sum(COUNTS.values()) + 2 * len(COUNTS)
    window = nights.runs[1].job().window
    assert window is not None
    assert window.store.startswith("s3://lake/states/")
    assert window.unchanged_rows == sum(COUNTS.values()) + len(COUNTS)


def test_everything_of_a_run_is_in_the_bucket(nights: Nights) -> None:
    keys = nights.server.keys()
    for run in nights.runs:
        inside = [key for key in keys if key.startswith(f"{str(run).removeprefix('s3://lake/')}/")]
        names = {key.rpartition("/")[2] for key in inside}
        assert {"job.json", "0000.json", "COMMIT.json"} <= names
        assert any("/owner" in key for key in inside), "leases"
    assert any(key.startswith("states/") and key.endswith(".parquet") for key in keys)
    assert any(key.startswith("data/tables/words-") and "/turns/" in key for key in keys), "turns"
    assert {key.partition("/")[0] for key in keys} == {"data", "states", "warehouse", "words"}


def test_nothing_of_a_run_is_on_a_disk_of_the_driver(nights: Nights) -> None:
    """The S3 server keeps its objects below the same folder, and Airflow its logs."""
    found = [
        Path(inner, name).relative_to(nights.folder) for inner, _, names in os.walk(nights.folder) for name in names
    ]
    left = {str(file) for file in found if file.parts[0] not in {"s3", "airflow", "events"}}
    assert left == {"catalog.db", "job.yaml", "master.log", "worker-1.log", "worker-2.log"}
    of_airflow = [file.name for file in found if file.parts[0] == "airflow"]
    assert not [name for name in of_airflow if name.endswith(".parquet") or name in {"job.json", "COMMIT.json"}]


def test_each_worker_worked_and_kept_nothing_on_a_disk_that_another_sees(nights: Nights) -> None:
    logs = nights.folder / "events"
    assert executors(logs, f"{JOB}.stage_00.run") == {"0", "1"}
    applications = {file.name for file in logs.iterdir() if not file.name.startswith(".")}
    ran = []
    for worker in nights.spark.workers:
        disk = worker.sees(worker.work)
        ran.append({app.name: {one.name for one in app.iterdir()} for app in disk.glob("app-*")})
        assert ran[-1].keys() == applications
        assert not worker.work.exists(), "its folder is on its own disk"
        assert not list(worker.sees(nights.folder).rglob("*")), "it sees nothing of the driver"
    first, second = ran
    assert not [app for app in applications if first[app] & second[app]], "no executor's folder is on both"


def executors(logs: Path, app: str) -> set[str]:
    found = set[str]()
    for file in logs.iterdir():
        events = [json.loads(line) for line in file.read_text().splitlines()] if file.name.startswith("app-") else []
        if any(one.get("App Name") == app for one in events):
            ended = [one for one in events if one["Event"] == "SparkListenerTaskEnd"]
            found |= {one["Task Info"]["Executor ID"] for one in ended if one["Task End Reason"]["Reason"] == "Success"}
    return found


def test_the_asset_events_name_the_table_its_snapshot_and_the_run(nights: Nights) -> None:
    extras: list[Mapping[str, Any]] = [event["extra"] for event in nights.events]
    table = open_catalog("lake", ROOT).load_table(TABLE)
    for run, day, extra in zip(nights.runs, DAYS[1:], extras, strict=True):
        record = record_of(run)
        assert record is not None
        assert extra["path"] == f"iceberg://lake.{TABLE}/date={day}"
        assert extra["run"] == str(run)
        assert table.snapshot_by_id(int(extra["snapshot"])) is not None
        assert extra["snapshot"] == record.snapshot
