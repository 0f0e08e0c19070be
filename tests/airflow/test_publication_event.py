"""What a publication's asset event says, and who reads it."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.models.asset import AssetDagRunQueue, AssetEvent, AssetModel, AssetPartitionDagRun
from airflow.models.dagrun import DagRun
from airflow.utils.session import create_session
from sqlalchemy import select
from sqlalchemy.event import listen, remove

from benchmarks.simulation import Simulation
from skewless.run.directory import RunDirectory
from skewless.run.publication.places import turns_folder
from skewless.run.publication.publish import publish
from skewless.run.publication.records import superseded_by
from skewless_airflow.observability.lineage import published_lineage
from skewless_airflow.observability.links import quality_page, skew_page
from skewless_lake.catalogs import open_catalog
from skewless_leases import Turns, open_store
from tests import airflow_setting
from tests.airflow.recorded_run import NIGHT, record, validate
from tests.lake.outputs import output_of, staged
from tests.unit.synthetic import simulated, zipf_rows

pytestmark = [airflow_setting.IN_PROCESS, pytest.mark.usefixtures("airflow_database")]

#: Where Airflow notes what events have woken: plain DAGs, and partitioned ones.
_QUEUES: tuple[Any, ...] = (AssetDagRunQueue, AssetPartitionDagRun)
COUNTS = zipf_rows(50, 1.2, 2_000)
KILLED, LATE = NIGHT + dt.timedelta(days=1), NIGHT + dt.timedelta(days=2)
_PUBLISHING = """
from airflow.sdk import DAG, Asset
from skewless_airflow.operators.publish import PublishOperator

with DAG("publishing", schedule=None) as dag:
    PublishOperator(task_id="publish", asset=Asset(name="skewless:python_tokens"))
"""
#: DAGs that are not paused, so that events wake them.
_WAITING = """
from airflow.sdk import PartitionedAssetTimetable

of_parts = PartitionedAssetTimetable(assets=Asset("skewless:python_tokens/parts"))
for name, schedule in {"waits_plainly": [Asset("skewless:python_tokens")], "waits_for_parts": of_parts}.items():
    with DAG(name, schedule=schedule, is_paused_upon_creation=False):
        PublishOperator(task_id="publish", asset=Asset(name=name))
"""


@pytest.fixture
def played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Simulation:
    """A run below a data root of its own, not played yet."""
    monkeypatch.setenv("SKEWLESS_ROOT", str(tmp_path))
    found = simulated(COUNTS, waves=(1, 3), reducers=4)
    found.job = found.job.model_copy(update={"output_path": str(tmp_path / "out")})
    return found


def _validated(played: Simulation, dag_id: str, night: dt.datetime, turn: int) -> RunDirectory:
    """A night's run directory that has all but its publication."""
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
    (dags_folder / "downstream.py").write_text(
        (airflow_setting.PROJECT / "dags/skewless_example_downstream.py").read_text()
    )
    bag = DagBag(dags_folder)
    done = bag.dags["publishing"].test(logical_date=NIGHT, run_after=NIGHT)
    assert str(done.state) == "success"

    (extra,) = _events()
    assert (extra["run"], extra["turn"]) == (str(run), 2)
    assert (extra["rows"], extra["keys"]) == (int(np.sum(COUNTS)), 50)
    assert extra["path"] == f"{tmp_path}/out/date={played.job.date}"
    assert extra["quality"] == {"passed": True, "expectations": 1, "failed": 0, "ledger_balanced": True}
    assert 1.0 <= extra["balance"]["max_over_mean"] < 1.2
    assert extra["stages"] == len(played.reports)
    assert (extra["policy"], extra["mode"]) == ("adaptive", "run")
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
    over = superseded_by(late)
    assert over is not None
    assert (over.by.run, over.turn) == (str(run), 2)
    # Killed between its record and the end of its task, and tried again.
    publish(killed, Turns(open_store(turns_folder(str(tmp_path / "out")))), NIGHT)
    for _ in range(2):  # and cleared
        assert str(bag.dags["publishing"].test(logical_date=KILLED, run_after=KILLED).state) == "success"
        assert [(event["run"], event["turn"]) for event in _events()] == [(str(run), 2), (str(killed), 3)]


@pytest.mark.long
def test_what_a_run_with_a_partition_key_publishes_starts_only_what_waits_for_its_parts(
    played: Simulation, dags_folder: Path
) -> None:
    """Airflow gives the key of a run to the plain event, too. So a job has such runs only if its spec says so."""
    played.play()
    for turn, night in enumerate((NIGHT, LATE), 1):
        _validated(played, "keyed", night, turn)
    (dags_folder / "keyed.py").write_text(_PUBLISHING.replace('"publishing"', '"keyed"') + _WAITING)
    dag, part = DagBag(dags_folder).dags["keyed"], str(played.job.date)

    assert str(dag.test(logical_date=NIGHT, run_after=NIGHT).state) == "success"
    assert _keys("keyed") == {("skewless:python_tokens", None), ("skewless:python_tokens/parts", part)}
    assert _woken() == ["waits_for_parts", "waits_plainly"]

    def with_key(_mapper: object, _connection: object, run: DagRun) -> None:
        run.partition_key = "of-the-run"

    listen(DagRun, "before_insert", with_key)  # as ``DAG.test`` takes no key
    try:
        assert str(dag.test(logical_date=LATE, run_after=LATE).state) == "success"
    finally:
        remove(DagRun, "before_insert", with_key)
    assert ("skewless:python_tokens", "of-the-run") in _keys("keyed")
    assert _woken() == ["waits_for_parts"]


@pytest.mark.long
def test_the_event_of_a_result_in_a_table_names_its_snapshot(
    played: Simulation, tmp_path: Path, dags_folder: Path
) -> None:
    output, path = output_of("iceberg", tmp_path)
    spec = played.job.spec.model_copy(update={"output": output})
    played.job = played.job.model_copy(update={"spec": spec, "output_path": path, "root": str(tmp_path)})
    played.play()
    run = _validated(played, "publishing", NIGHT, 1)
    staged(run)
    (dags_folder / "publishing.py").write_text(_PUBLISHING)
    dag = DagBag(dags_folder).dags["publishing"]
    assert str(dag.test(logical_date=NIGHT, run_after=NIGHT).state) == "success"
    table = open_catalog("local", str(tmp_path)).load_table("marts.clicks")
    snapshot = table.current_snapshot()
    assert snapshot is not None
    extra = _events()[-1]
    assert (extra["snapshot"], extra["path"]) == (snapshot.snapshot_id, f"{path}/date={played.job.date}")
    assert len(table.scan().to_arrow()) == 50
    (written,) = published_lineage(run).outputs
    assert (written.namespace, written.name) == ("file", table.location())
    assert [(one.namespace, one.name) for one in written.facets["symlinks"].identifiers] == [("local", "marts.clicks")]


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
    """The partition keys of the events of a DAG."""
    with create_session() as session:
        of_it = select(AssetModel.name, AssetEvent.partition_key).join(AssetModel, AssetModel.id == AssetEvent.asset_id)
        return {(name, key) for name, key in session.execute(of_it.where(AssetEvent.source_dag_id == dag_id))}


def _woken() -> list[str]:
    """The DAGs that Airflow has queued runs of since this was last asked."""
    with create_session() as session:
        queued = [(row, row.target_dag_id) for table in _QUEUES for row in session.scalars(select(table))]
        for row, _ in queued:
            session.delete(row)
        return sorted(dag_id for _, dag_id in queued)
