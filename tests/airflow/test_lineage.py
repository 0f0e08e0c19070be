"""What a run reads and writes, told to OpenLineage by its own provider, into a file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import pytest
from airflow.sdk import Asset

from skewless.documents.job import PinnedTable
from skewless.run.directory import RunDirectory
from skewless.spec.spec import JobSpec
from skewless_airflow.observability.lineage import dataset_name, published_lineage
from skewless_airflow.operators.prepare import PrepareOperator
from skewless_airflow.operators.publish import PublishOperator
from skewless_lake.publication import publish_run
from skewless_lake.staged import STAGED, StagedResult
from tests.airflow.recorded_run import NIGHT, record, validate
from tests.airflow.test_dag_structure import SPEC
from tests.lake.outputs import NOW, ready
from tests.unit.synthetic import simulated, zipf_rows

_DAG = """
from airflow.sdk import DAG, Asset
from skewless_airflow.operators.publish import PublishOperator

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
    """A run that has been validated and is about to be published."""
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
        ("s3a://lake/part?.parquet", ("s3://lake", "part?.parquet")),
        ("gs://lake/a#b", ("gs://lake", "a#b")),
    ],
)
def test_a_path_has_the_name_that_others_know_it_by(path: str, named: tuple[str, str]) -> None:
    assert dataset_name(path) == named


@pytest.mark.parametrize(("kind", "named"), [("iceberg", True), ("delta", False)])
def test_tables_are_told_with_their_snapshots_and_their_names_in_catalogs(
    tmp_path: Path, kind: Literal["iceberg", "delta"], named: bool
) -> None:
    """As the integrations of Iceberg and Delta tell them: a location, a version, and the name in a catalog."""
    source = PinnedTable(kind=kind, name="local.raw.clicks" if named else "/lake/clicks", snapshot="17")
    run = ready(tmp_path / "run", tmp_path, kind, "first", pinned=source)
    record = publish_run(run, NOW)
    told = published_lineage(run)
    (read,), (written,) = told.inputs, told.outputs
    assert (written.namespace, written.name) == ("file", run.read(STAGED, StagedResult).location)
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


@pytest.mark.long
@pytest.mark.usefixtures("run", "airflow_database")
def test_what_was_not_published_is_not_told_as_written(dags_folder: Path, tmp_path: Path) -> None:
    events = _told("untold", dags_folder, tmp_path / "events.json")
    (failed,) = [event for event in events if event["eventType"] == "FAIL"]
    assert failed["job"]["name"] == "untold.publish"
    assert failed["outputs"] == failed["inputs"] == []


def test_prepare_tells_what_will_be_read_once_there_is_a_job(run: RunDirectory) -> None:
    prepare = PrepareOperator(task_id="prepare", spec=JobSpec.model_validate(SPEC))
    run_id = _run_id(run)
    lineage = prepare.get_openlineage_facets_on_complete(SimpleNamespace(dag_id="told", run_id=run_id))
    assert [(one.namespace, one.name) for one in lineage.inputs] == [("file", "/lake/clicks")]
    assert not lineage.outputs
    nothing = prepare.get_openlineage_facets_on_complete(SimpleNamespace(dag_id="told", run_id="another"))
    assert nothing.inputs == nothing.outputs == []


def test_an_estimate_is_no_count(run: RunDirectory) -> None:
    job = run.job()
    guessed = job.model_copy(update={"units": tuple(unit.model_copy(update={"counted": False}) for unit in job.units)})
    other = RunDirectory(f"{run.root}-guessed")
    other.write_once("job.json", guessed)
    operator = PublishOperator(task_id="publish", asset=Asset("skewless:told"))
    prepare = PrepareOperator(task_id="prepare", spec=JobSpec.model_validate(SPEC))
    told = SimpleNamespace(dag_id="told", run_id=f"{_run_id(run)}-guessed")
    assert not operator.get_openlineage_facets_on_complete(told).outputs
    (read,) = prepare.get_openlineage_facets_on_complete(told).inputs
    assert read.inputFacets["inputStatistics"].rowCount is None


def _run_id(run: RunDirectory) -> str:
    """An id that leads to a run directory: its folder's name is safe already."""
    return str(run.root).rpartition("/")[2]


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
