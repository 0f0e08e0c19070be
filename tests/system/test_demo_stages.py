"""The jobs of ``make demo-stages`` through Airflow: what their plans change, and that the run's page shows it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import pyarrow.parquet as pq
import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.models.dagrun import DagRun

from examples import drifting_orders
from skewless.documents.ledger import balance
from skewless.run.directory import RESULT_STEP, RunDirectory
from skewless_airflow.run_store import run_location
from tests import airflow_setting
from tests.airflow.web_scenario import served

pytestmark = [pytest.mark.long, airflow_setting.IN_PROCESS, pytest.mark.timeout(900)]

NIGHT = dt.datetime(2026, 11, 20, 2, tzinfo=dt.UTC)
Look = Callable[[str], tuple[DagRun, RunDirectory, str]]


@pytest.fixture(scope="module")
def look(tmp_path_factory: pytest.TempPathFactory, airflow_database: None, dags_folder: Path) -> Look:  # noqa: ARG001
    """Runs a job of the catalog, and returns its run in Airflow, its run directory and its page."""
    folder = tmp_path_factory.mktemp("stages")
    drifting_orders.write(folder / "root" / "corpus" / drifting_orders.FOLDER)

    def look(name: str) -> tuple[DagRun, RunDirectory, str]:
        spec = airflow_setting.PROJECT / "jobs" / "catalog" / f"{name}.yaml"
        (dags_folder / f"{name}.py").write_text(
            f"# airflow\nfrom skewless_airflow.dags.catalog import build_dag\n{name} = build_dag({str(spec)!r})\n"
        )
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SKEWLESS_ROOT", str(folder / "root"))
            dag_run = DagBag(dags_folder / f"{name}.py").dags[name].test(logical_date=NIGHT, run_after=NIGHT)
            run = RunDirectory(run_location(name, dag_run.run_id))
        with served(folder) as clients:
            answer = clients["admin"].get(f"/skewless/dags/{name}/runs/{quote(dag_run.run_id, safe='')}/skew")
        assert answer.status_code == 200, answer.text
        return dag_run, run, answer.text

    return look


def _require_right(dag_run: DagRun, run: RunDirectory) -> None:
    """The run ended well, its ledger balances, and the result has every order once."""
    assert {str(ti.state) for ti in dag_run.get_task_instances()} == {"success"}
    result = run.committed(RESULT_STEP)
    assert balance(run.job(), run.reports(), state_rows=result.count("rows")).balanced
    found = pq.ParquetDataset([f"{run.root}/{file.path}" for file in result.of_kind("result")]).read()
    counts = dict(zip(found["customer"].to_pylist(), found["orders"].to_pylist(), strict=True))
    given = pq.ParquetDataset(run.job().input_path).read()["customer"].value_counts().to_pylist()
    assert counts == {one["values"]: one["counts"] for one in given}


def _taken(run: RunDirectory) -> list[str]:
    """The action of each decision but the last, each predicted to cost less than to change nothing."""
    weighed = [run.decision(stage).candidates for stage in range(1, 5)]
    chosen = [next(one for one in candidates if one.chosen) for candidates in weighed]
    assert all(one.cost_rows < still.cost_rows for one, (still, *_) in zip(chosen, weighed, strict=True))
    return [one.action for one in chosen]


def test_virtual_tasks_are_split_and_merged_and_tokens_moved_as_that_pays(look: Look) -> None:
    dag_run, run, page = look("stages_by_buckets")
    _require_right(dag_run, run)
    assert _taken(run) == ["split tasks", "even out tail", "even out tail", "merge tasks"]
    *tasks, last = [len(run.plan(stage).tasks) for stage in range(5)]
    assert (tasks, last < 16) == ([4, 16, 16, 16], True)
    assert all(run.report(stage).forwarded_rows > 0 for stage in (1, 2, 3))
    assert all(map(page.count, ("key buckets for 4 reducers, 16 tasks in all", "change the tokens of", "forwarded")))


def test_reducers_join_and_leave_and_a_split_key_is_put_together_as_that_pays(look: Look) -> None:
    dag_run, run, page = look("stages_by_reducers")
    _require_right(dag_run, run)
    taken = _taken(run)
    assert (taken[0], taken[-1]) == ("add reducers", "remove reducers")
    split = [{key for key, shares in run.plan(stage).head.items() if len(shares) > 1} for stage in range(5)]
    assert "customer-0000" in split[1]
    assert (split[1] | split[2] | split[3]) - split[4]
    assert "add 12 reducers, 16 in all" in page
