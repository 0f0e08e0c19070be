"""The DAG that runs a job again for days whose published results are not up to date."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from airflow.sdk.exceptions import AirflowFailException

from skewless.errors import SpecError
from skewless.publication.records import MANIFEST, VersionManifest, identity_of
from skewless.run.directory import RunDirectory
from skewless.spec.reading import load_spec
from skewless_airflow import catalog_dags
from skewless_airflow.operators.run_tasks import FindStaleOperator
from skewless_spark.prepare.prepare import prepare
from tests.airflow.test_dag_structure import SPEC

WINDOW = {**SPEC, "input": {"path": "in/{date}"}, "window": 2}
DAYS = [dt.date(2026, 11, 20) + dt.timedelta(days=number) for number in range(3)]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SKEWLESS_CATALOG", str(tmp_path / "catalog"))
    monkeypatch.setenv("SKEWLESS_ROOT", str(tmp_path))
    (tmp_path / "catalog").mkdir()
    (tmp_path / "catalog" / "small.yaml").write_text(yaml.safe_dump(WINDOW))
    return tmp_path


def _write(root: Path, day: dt.date, name: str) -> None:
    folder = root / "in" / str(day)
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"word": ["a", "b"]}), folder / f"{name}.parquet")


def test_a_job_with_a_window_has_a_second_dag(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dags = {dag.dag_id: dag for dag in catalog_dags(auto_register=False)}
    assert list(dags) == ["small", "small_restate"]
    restate = dags["small_restate"]
    assert [task.task_id for task in restate.topological_sort()] == ["find", "restate"]
    assert list(restate.params) == ["from", "to"]
    monkeypatch.setenv("_AIRFLOW_PARSING_CONTEXT_DAG_ID", "small_restate")  # as Airflow does in a task
    assert [dag.dag_id for dag in catalog_dags()] == ["small_restate"]
    monkeypatch.delenv("_AIRFLOW_PARSING_CONTEXT_DAG_ID")
    path = root / "catalog" / "small.yaml"
    path.write_text(yaml.safe_dump({**WINDOW, "window": {"length": 2, "late": "fail"}}))
    assert [dag.dag_id for dag in catalog_dags()] == ["small"]
    path.write_text(yaml.safe_dump(WINDOW))
    (root / "catalog" / "zoo.yaml").write_text(yaml.safe_dump({**SPEC, "name": "small_restate"}))
    words = "a name that no other spec has, but got 'small_restate', which small.yaml has"
    with pytest.raises(SpecError, match=words):
        catalog_dags()


def test_it_triggers_a_run_for_each_day_whose_window_has_changed(root: Path) -> None:
    path = root / "catalog" / "small.yaml"
    spec = load_spec(path)
    for day in DAYS:
        _write(root, day, "x")
    for day in DAYS[1:]:  # as published: the finder reads documents only
        run = RunDirectory(str(root / "runs" / "small" / str(day)))
        job = prepare(run, spec, day, str(root))
        folder = root / "out" / f"date={day}"
        folder.mkdir(parents=True)
        manifest = VersionManifest(by=identity_of(run), turn=job.turn, name=f"{job.turn}-aa", files=())
        (folder / MANIFEST).write_text(manifest.sealed())
    find = FindStaleOperator(task_id="find", spec_path=str(path))
    asked = {"from": str(DAYS[0]), "to": str(DAYS[-1])}
    assert find.execute({"params": asked}) == []
    _write(root, DAYS[0], "late")
    (first,) = find.execute({"params": asked})
    assert first["conf"] == {"date": str(DAYS[1])}
    assert first["trigger_run_id"].startswith(f"restate__{DAYS[1]}__")
    assert find.execute({"params": asked}) == [first]
    # As after it was published again while the file was away: what is there now must be computed once more.
    lying = root / "out" / f"date={DAYS[1]}" / MANIFEST
    published = VersionManifest.from_sealed(lying.read_bytes(), where=str(lying))
    lying.write_text(published.model_copy(update={"name": f"{published.turn}-bb"}).sealed())
    (again,) = find.execute({"params": asked})
    assert again["trigger_run_id"] != first["trigger_run_id"]
    _write(root, DAYS[1], "late")
    assert [one["conf"]["date"] for one in find.execute({"params": asked})] == [str(day) for day in DAYS[1:]]
    path.write_text("name: [")
    with pytest.raises(AirflowFailException, match="spec"):
        find.execute({"params": asked})
