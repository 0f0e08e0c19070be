"""What a publication's asset event says and who reads it, and what OpenLineage is told."""

import datetime as dt
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.models.asset import AssetEvent, AssetModel
from airflow.sdk import Asset
from airflow.utils.session import create_session
from sqlalchemy import select

from benchmarks.simulation import Simulation
from skewless.documents.job import PinnedTable
from skewless.documents.nights import FinalDay, Finality
from skewless.publication.records import Overtaken, identity_of, record_of
from skewless.run.directory import FINALITY, RunDirectory
from skewless.spec.spec import JobSpec
from skewless_airflow.observability.lineage import dataset_name, published_lineage
from skewless_airflow.observability.links import quality_page, skew_page
from skewless_airflow.operators.run_tasks import PrepareOperator, PublishOperator
from skewless_lake.publication import publish_run
from skewless_lake.staged_files import staged_parts
from tests import airflow_setting
from tests.airflow.recorded_run import NIGHT, record, validate
from tests.airflow.test_dag_structure import SPEC
from tests.lake.outputs import NOW, ready
from tests.tiers import mostly_long
from tests.unit.synthetic import simulated, zipf_rows

pytestmark = [airflow_setting.IN_PROCESS, pytest.mark.usefixtures("airflow_database")]

COUNTS = zipf_rows(50, 1.2, 2_000)
KILLED, LATE = NIGHT + dt.timedelta(days=1), NIGHT + dt.timedelta(days=2)
_PUBLISHING = """
from airflow.sdk import DAG, Asset
from skewless_airflow.operators.run_tasks import PublishOperator

with DAG("publishing", schedule=None) as dag:
    PublishOperator(task_id="publish", asset=Asset(name="skewless:python_tokens"))
"""


@pytest.fixture
def played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Simulation:
    monkeypatch.setenv("SKEWLESS_ROOT", str(tmp_path))
    found = simulated(COUNTS, waves=(1, 3), reducers=4)
    found.job = found.job.model_copy(update={"output_path": str(tmp_path / "out")})
    return found


def _validated(played: Simulation, dag_id: str, night: dt.datetime, turn: int) -> RunDirectory:
    run = record(played, dag_id, night, turn)
    validate(run, {f"key-{number}": int(rows) for number, rows in enumerate(COUNTS)})
    return run


def test_the_event_of_a_result_tells_what_it_is_and_the_example_downstream_reads_it(
    played: Simulation, tmp_path: Path, dags_folder: Path
) -> None:
    played.play()
    run, killed, late = (
        _validated(played, "publishing", night, turn) for night, turn in ((NIGHT, 2), (KILLED, 3), (LATE, 1))
    )
    (dags_folder / "publishing.py").write_text(_PUBLISHING)
    (dags_folder / "downstream.py").write_text((airflow_setting.PROJECT / "examples/downstream_dag.py").read_text())
    bag = DagBag(dags_folder)
    done = bag.dags["publishing"].test(logical_date=NIGHT, run_after=NIGHT)
    assert str(done.state) == "success"

    (extra,) = _events()
    assert (extra["run"], extra["turn"]) == (str(run), 2)
    assert (extra["rows"], extra["keys"], extra["state"]) == (int(np.sum(COUNTS)), 50, "published")
    assert (extra["published_rows"], extra["withheld_rows"]) == (extra["rows"], 0)
    assert extra["path"] == f"{tmp_path}/out/date={played.job.date}"
    assert extra["quality"] == {
        "passed": True, "verdict": "passed", "expectations": 1, "failed": 0, "warnings": [], "quarantined_keys": 0,
        "ledger_balanced": True,
    }  # fmt: skip
    assert 1.0 <= extra["balance"]["max_over_mean"] < 1.2
    assert extra["stages"] == len(played.reports)
    assert extra["policy"] == "adaptive"
    assert extra["links"] == {
        "skew": skew_page("publishing", done.run_id),
        "quality": quality_page("publishing", done.run_id),
    }

    read = bag.dags["skewless_example_downstream"].test(logical_date=NIGHT, run_after=NIGHT)
    assert str(read.state) == "success"
    told = read.get_task_instance("read_result").xcom_pull(task_ids="read_result")
    assert (told["read"], told["columns"]) == (50, ["key", "occurrences"])
    assert told["quality"]["passed"]

    # Cleared: what it has published is told already.
    assert str(bag.dags["publishing"].test(logical_date=NIGHT, run_after=NIGHT).state) == "success"
    assert len(_events()) == 1
    # A run with an earlier turn is superseded, which is no failure and no event.
    assert str(bag.dags["publishing"].test(logical_date=LATE, run_after=LATE).state) == "success"
    assert len(_events()) == 1
    assert getattr(record_of(late), "superseded", None) == Overtaken(by=identity_of(run), turn=2)
    # Killed between its record and the end of its task, and tried again.
    publish_run(killed, NIGHT)
    for _ in range(2):  # and cleared
        assert str(bag.dags["publishing"].test(logical_date=KILLED, run_after=KILLED).state) == "success"
        assert [(event["run"], event["turn"]) for event in _events()] == [(str(run), 2), (str(killed), 3)]


def test_each_day_that_is_final_has_an_event_with_its_own_key(played: Simulation, dags_folder: Path) -> None:
    played.play()
    day = played.job.date
    days = tuple(FinalDay(part=str(day - dt.timedelta(days=back)), delay=back, run=str(day), turn=1) for back in (7, 3))
    for turn, night in enumerate((NIGHT, LATE), 1):
        run = _validated(played, "telling", night, turn)
        run.write_once(FINALITY, Finality(part=str(day), final=days[turn - 1 : turn]))
    text = _PUBLISHING.replace('"publishing"', '"telling"').replace('tokens"))', 'tokens"), final=True)')
    (dags_folder / "telling.py").write_text(text)
    dag = DagBag(dags_folder).dags["telling"]
    result, final = "skewless:python_tokens", "skewless:python_tokens/final"
    known = {(result, None), (f"{result}/parts", str(day))}
    assert str(dag.test(logical_date=NIGHT, run_after=NIGHT).state) == "success"
    assert _keys("telling") == known | {(final, one.part) for one in days[:1]}
    assert str(dag.test(logical_date=LATE, run_after=LATE).state) == "success"
    assert _keys("telling") == known | {(final, one.part) for one in days}
    assert str(dag.test(logical_date=LATE, run_after=LATE).state) == "success"
    assert len(_final_days()) == 2, "what is cleared tells nothing again"


def _final_days() -> list[str]:
    with create_session() as session:
        of_final = select(AssetEvent.partition_key).join(AssetModel, AssetModel.id == AssetEvent.asset_id)
        return list(session.scalars(of_final.where(AssetModel.name == "skewless:python_tokens/final")))


def _events() -> list[dict[str, Any]]:
    """What the events of the result say. Each has one of the parts beside it, with the day as its partition key."""
    with create_session() as session:
        of_ours = select(AssetEvent, AssetModel.name).join(AssetModel, AssetModel.id == AssetEvent.asset_id)
        found = list(session.execute(of_ours.where(AssetEvent.source_dag_id == "publishing").order_by(AssetEvent.id)))
        plain = [event for event, name in found if name == "skewless:python_tokens"]
        keyed = [event for event, name in found if name == "skewless:python_tokens/parts"]
        assert len(plain) + len(keyed) == len(found)
        assert {event.partition_key for event in plain} == {None}
        told = [(event.extra["date"], event.extra, event.source_run_id) for event in plain]
        assert [(event.partition_key, event.extra, event.source_run_id) for event in keyed] == told
        return [event.extra for event in plain]


def _keys(dag_id: str) -> set[tuple[str, str | None]]:
    with create_session() as session:
        of_it = select(AssetModel.name, AssetEvent.partition_key).join(AssetModel, AssetModel.id == AssetEvent.asset_id)
        return {(name, key) for name, key in session.execute(of_it.where(AssetEvent.source_dag_id == dag_id))}


# What a run reads and writes, told to OpenLineage by its own provider, into a file.

_DAG = """
from airflow.sdk import DAG, Asset
from skewless_airflow.operators.run_tasks import PublishOperator

with DAG({name!r}, schedule=None) as dag:
    PublishOperator(task_id="publish", asset=Asset("skewless:{name}"))
"""

#: In a process of its own: a listener is there from Airflow's first import on, or never.
_RUN = """
import datetime as dt, sys
from airflow.dag_processing.dagbag import DagBag

file, name, night = sys.argv[1:]
moment = dt.datetime.fromisoformat(night)
DagBag(file).dags[name].test(logical_date=moment, run_after=moment)
"""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunDirectory:
    monkeypatch.setenv("SKEWLESS_ROOT", str(tmp_path))
    played = simulated(zipf_rows(50, 1.2, 2_000), waves=(1, 3), reducers=2).play()
    job = played.job.model_copy(
        update={"input_path": "/lake/clicks", "output_path": str(tmp_path / "marts" / "clicks")}
    )
    played.job = job
    made = record(played, "told")
    validate(made, dict(Counter({"a": job.rows - 1, "b": 1})))
    return made


@pytest.mark.parametrize(
    ("path", "named"),
    [
        ("/lake/clicks", ("file", "/lake/clicks")),
        ("file:/lake/clicks", ("file", "/lake/clicks")),
        ("file:///lake/clicks", ("file", "/lake/clicks")),
        ("s3a://lake/a/b", ("s3://lake", "a/b")),
        ("s3://lake", ("s3://lake", "/")),
        ("gs://lake/a", ("gs://lake", "a")),
        ("hdfs://node:8020/a", ("hdfs://node:8020", "/a")),
        ("abfss://box@account.example/a", ("abfss://box@account.example", "a")),
        ("s3a://name:secret@lake/a", ("s3://lake", "a")),
        ("https://token@host/a?sv=1&sig=x", ("https://host", "a")),
        ("wasbs://box@account.example/a;sas=x", ("wasbs://box@account.example", "a")),
        ("s3a://lake/part?.parquet", ("s3://lake", "part?.parquet")),
        ("gs://lake/a#b", ("gs://lake", "a#b")),
    ],
)
def test_a_path_has_the_name_that_others_know_it_by(path: str, named: tuple[str, str]) -> None:
    assert dataset_name(path) == named


@pytest.mark.parametrize(("kind", "named"), mostly_long([("iceberg", True), ("delta", False)], ("iceberg", True)))
def test_tables_are_told_with_their_snapshots_and_their_names_in_catalogs(
    tmp_path: Path, kind: Literal["iceberg", "delta"], named: bool
) -> None:
    source = PinnedTable(kind=kind, name="local.raw.clicks" if named else "/lake/clicks", snapshot="17")
    run = ready(tmp_path / "run", tmp_path, kind, "first", pinned=source)
    record = publish_run(run, NOW)
    told = published_lineage(run)
    (read,), (written,) = told.inputs, told.outputs
    assert (written.namespace, written.name) == ("file", staged_parts(run)[-1][1].location)
    assert [one.facets["version"].datasetVersion for one in (read, written)] == ["17", str(record.snapshot)]
    names = [[(it.namespace, it.name) for it in one.facets["symlinks"].identifiers] for one in (read, written) if named]
    assert names == ([[("local", "raw.clicks")], [("local", "marts.clicks")]] if named else [])


@pytest.mark.long
@pytest.mark.usefixtures("airflow_database")
def test_a_publication_is_told_to_openlineage_with_its_input_and_output(
    run: RunDirectory, dags_folder: Path, tmp_path: Path
) -> None:
    events = _told("told", dags_folder, tmp_path / "events.json")
    (complete,) = [event for event in events if event["eventType"] == "COMPLETE"]
    assert complete["job"]["name"] == "told.publish"
    (read,), (written,) = complete["inputs"], complete["outputs"]
    job = run.job()
    assert (read["namespace"], read["name"]) == ("file", "/lake/clicks")
    statistics = read["inputFacets"]["inputStatistics"]
    assert (statistics["rowCount"], statistics["fileCount"]) == (job.rows, len(job.units))
    assert (written["namespace"], written["name"]) == ("file", str(tmp_path / "marts" / "clicks"))
    statistics = written["outputFacets"]["outputStatistics"]
    files = [file.stat().st_size for file in (tmp_path / "marts" / "clicks").glob("date=*/part-*")]
    assert (statistics["rowCount"], statistics["fileCount"], statistics["size"]) == (2, len(files), sum(files))
    assert files


def test_an_estimate_is_no_count(run: RunDirectory) -> None:
    job = run.job()
    guessed = job.model_copy(update={"units": tuple(unit.model_copy(update={"counted": False}) for unit in job.units)})
    other = RunDirectory(f"{run.root}-guessed")
    other.write_once("job.json", guessed)
    operator = PublishOperator(task_id="publish", asset=Asset("skewless:told"))
    prepare = PrepareOperator(task_id="prepare", spec=JobSpec.model_validate(SPEC))
    told = SimpleNamespace(dag_id="told", run_id=f"{Path(run.root).name}-guessed")
    assert not operator.get_openlineage_facets_on_complete(told).outputs
    (read,) = prepare.get_openlineage_facets_on_complete(told).inputs
    assert read.inputFacets["inputStatistics"].rowCount is None


def _told(name: str, dags_folder: Path, file: Path) -> list[dict[str, Any]]:
    """What OpenLineage is told of a task by an Airflow that has been told where to."""
    (dags_folder / f"{name}.py").write_text(_DAG.format(name=name))
    transport = {"type": "file", "log_file_path": str(file), "append": True}
    done = subprocess.run(
        [sys.executable, "-c", _RUN, str(dags_folder / f"{name}.py"), name, NIGHT.isoformat()],
        env={**os.environ, "AIRFLOW__OPENLINEAGE__TRANSPORT": json.dumps(transport)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert file.exists(), f"{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    events = [json.loads(line) for line in file.read_text().splitlines()]
    return [event for event in events if event["job"]["name"] == f"{name}.publish"]
