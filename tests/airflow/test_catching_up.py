"""A job whose runs catch up: its DAG triggers a run for each part that nobody has computed."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from skewless.run.publication.records import MANIFEST, Identity, VersionManifest
from skewless.spec.part import Part
from skewless.spec.reading import load_spec
from skewless_airflow.dags.catalog import build_dag
from skewless_airflow.operators.find_runs import FindSkippedOperator
from skewless_airflow.run_store import run_directory
from skewless_spark.prepare.prepare import prepare
from tests.airflow.test_dag_structure import SPEC

DAY = dt.date(2026, 11, 20)


def write_spec(folder: Path, **schedule: str) -> Path:
    path, hourly = folder / "small.yaml", {"cron": "5 * * * *", "hour": "previous", **schedule}
    path.write_text(yaml.safe_dump({**SPEC, "input": {"path": "in.parquet"}, "schedule": hourly}))
    return path


def test_only_a_job_that_catches_up_has_tasks_for_it(tmp_path: Path) -> None:
    assert "catch_up" not in build_dag(write_spec(tmp_path)).task_ids
    dag = build_dag(write_spec(tmp_path, missed="catch_up"))
    assert dag.get_task("find_skipped").upstream_task_ids == {"prepare"}
    assert dag.get_task("catch_up").upstream_task_ids == {"find_skipped"}
    assert dag.get_task("catch_up").downstream_task_ids == set()


@pytest.mark.parametrize(("missed", "caught_up"), [("say", 0), ("catch_up", 4)])
def test_a_run_of_the_schedule_triggers_one_for_each_hour_that_a_long_run_kept_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missed: str, caught_up: int
) -> None:
    monkeypatch.setenv("SKEWLESS_ROOT", str(tmp_path))
    path = write_spec(tmp_path, missed=missed)
    pq.write_table(pa.table({"word": ["a"]}), tmp_path / "in.parquet")
    published = tmp_path / "out" / Part(DAY, "03").folder()
    published.mkdir(parents=True)
    lies = VersionManifest(by=Identity(job="0" * 64, run="/gone"), turn=1, name="1-a", files=())
    (published / MANIFEST).write_text(lies.sealed())
    dag_run: Any = SimpleNamespace(dag_id="small", run_id="scheduled__1", run_type="scheduled", conf={})
    job = prepare(run_directory(dag_run), load_spec(path), DAY, str(tmp_path), hour="08")
    assert [Part.named(name).hour for name in job.skipped] == ["04", "05", "06", "07"]
    find = FindSkippedOperator(task_id="find_skipped")
    context: Any = {"dag_run": dag_run}
    found = find.execute(context)
    assert found == [
        {"trigger_run_id": f"catch_up__{DAY}T{hour}", "conf": {"date": str(DAY), "hour": hour}}
        for hour in ("04", "05", "06", "07")[:caught_up]
    ]
    for asked in ({"run_type": "backfill"}, {"run_type": "manual", "conf": {"date": str(DAY), "hour": "08"}}):
        context = {"dag_run": SimpleNamespace(**{**vars(dag_run), **asked})}
        assert find.execute(context) == []
