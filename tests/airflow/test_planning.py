"""The plan tasks, run by Airflow over the documents of a run that was reduced by arithmetic alone."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from urllib.parse import quote

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.models.dagrun import DagRun
from airflow.utils.types import DagRunType

from benchmarks.simulation import Simulation
from skewless.documents.decision import Decision
from skewless.run.directory import RunDirectory, stage_step
from skewless_airflow.observability.links import DecisionLink
from skewless_airflow.operators.planning import planning_lines
from skewless_airflow.run_store import run_location
from tests import airflow_setting
from tests.unit.synthetic import simulated, zipf_rows

NIGHT = dt.datetime(2026, 11, 20, 2, tzinfo=dt.UTC)
LAST = 4

_DAG = f"""
from airflow.sdk import DAG
from skewless_airflow.operators.planning import PlanStageOperator

with DAG("planning", schedule=None) as dag:
    before = None
    for stage in range(1, {LAST + 1}):
        plan = PlanStageOperator(task_id=f"plan_{{stage}}", stage=stage, trigger_rule="none_failed")
        if before is not None:
            before >> plan
        before = plan
"""


@pytest.fixture(scope="module")
def synthetic() -> Simulation:
    run = simulated(zipf_rows(500, 1.2, 20_000), waves=(1, 3), reducers=4).play()
    assert len(run.reports) < LAST, "the run should end before the stages are used up"
    return run


@pytest.fixture
def recorded(synthetic: Simulation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunDirectory:
    """The run directory that a Spark run of it would have left, without the decisions."""
    monkeypatch.setenv("SKEWLESS_ROOT", str(tmp_path))
    run_id = DagRun.generate_run_id(run_type=DagRunType.MANUAL, logical_date=NIGHT, run_after=NIGHT)
    run = RunDirectory(run_location("planning", run_id))
    run.write_once("job.json", synthetic.job)
    run.write_once("plans/0000.json", synthetic.plans[0])
    for report in synthetic.reports:
        attempt = run.new_attempt(stage_step(report.stage))
        attempt.write("report.json", report)
        attempt.commit([], {"processed_rows": report.processed_rows})
    return run


@airflow_setting.IN_PROCESS
@pytest.mark.usefixtures("airflow_database")
def test_plan_tasks_decide_what_the_planner_decides_and_skip_what_is_not_needed(
    synthetic: Simulation, recorded: RunDirectory, dags_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (dags_folder / "planning.py").write_text(_DAG)
    done = DagBag(dags_folder / "planning.py").dags["planning"].test(logical_date=NIGHT, run_after=NIGHT)
    states = [str(done.get_task_instance(f"plan_{stage}").state) for stage in range(1, LAST + 1)]
    needed = len(synthetic.reports) - 1
    assert states == ["success"] * needed + ["skipped"] * (LAST - needed)
    decided = [recorded.decision(stage) for stage in range(1, needed + 2)]
    assert decided == synthetic.decisions
    assert recorded.plan(1) == synthetic.plans[1]
    assert not recorded.exists(f"decisions/{needed + 2:04d}.json")
    told = capsys.readouterr().out
    assert "stand still" in told
    assert "the input is used up and no backlog is left" in told
    assert f"stage {needed} was the last" in told
    for stage in range(1, LAST + 1):
        ti = done.get_task_instance(f"plan_{stage}")
        page = f"/dags/planning/runs/{quote(done.run_id, safe='')}/tasks/plan_{stage}/plugin/decision"
        assert ti.xcom_pull(task_ids=ti.task_id, key=DecisionLink().xcom_key) == page, "a skipped task has its link too"


def test_the_log_of_a_decision_folds_backlog_candidates_and_choice(synthetic: Simulation) -> None:
    report, decision = synthetic.reports[0], synthetic.decisions[0]
    lines = list(planning_lines(report, decision))
    assert [line for line in lines if line.startswith("::group::")] == [
        f"::group::Backlog of stage 0, {report.backlog_rows:,} rows in 4 tasks",
        f"::group::Candidates for stage 1, {decision.queued_rows:,} rows queued",
        "::group::Decision about stage 1, policy adaptive",
    ]
    assert lines.count("::endgroup::") == 3
    for load in report.tasks:
        assert any(
            line.split()[:4] == [load.task, *_thousands(load.queued_rows, load.processed_rows, load.backlog_rows)]
            for line in lines
        )
    for one in decision.candidates:
        assert any(one.action in line and one.sentence in line for line in lines)
    assert sum(line.startswith("> ") for line in lines) == 1
    assert decision.sentence in lines


def test_a_decision_to_finish_has_no_candidates_to_show(synthetic: Simulation) -> None:
    last: Decision = synthetic.decisions[-1]
    assert last.next_plan is None
    lines = list(planning_lines(synthetic.reports[-1], last))
    assert not any("Candidates" in line for line in lines)
    assert last.sentence in lines


def _thousands(*numbers: int) -> list[str]:
    return [f"{number:,}" for number in numbers]
