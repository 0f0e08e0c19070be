"""Plan tasks; and decisions that would forward much wait for an answer, which a whole Airflow is given by its API."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.models.dagrun import DagRun
from airflow.utils.types import DagRunType

from benchmarks.simulation import Simulation
from skewless.documents.decision import Decision
from skewless.planner.planner import plan_next_stage
from skewless.run.directory import RunDirectory
from skewless_airflow.observability.links import DecisionLink
from skewless_airflow.operators.approval import ApproveForwardingOperator, forwarded_share, question
from skewless_airflow.operators.planning import planning_lines
from tests import airflow_setting
from tests.airflow.recorded_run import NIGHT, record
from tests.served_airflow import ServedAirflow, await_that
from tests.unit.synthetic import simulated, zipf_rows

_DAG = """
import datetime as dt
from airflow.sdk import DAG, task
from skewless_airflow.operators.approval import ApproveForwardingOperator

with DAG({name!r}, schedule=None) as dag:

    @task
    def stage():
        pass

    approve = ApproveForwardingOperator(
        task_id="approve", pool="{pool}", stage={stage}, limit={limit}, retries=3,
        response_timeout=dt.timedelta(seconds={seconds}),
    )
    approve >> stage()
"""
#: The limit of each DAG, and for how many seconds an answer is waited for.
_DAGS = {"permitting": (1.0, 3600), "asking": (0.0, 3600), "hurried": (0.0, 1)}
#: Of its own, so that no other test holds a slot of it.
POOL = "approvals"
HITL = "/taskInstances/approve/-1/hitlDetails"
DONE = {"approve": "success", "stage": "success"}


@pytest.fixture(scope="module")
def synthetic() -> Simulation:
    return simulated(zipf_rows(500, 1.2, 20_000), waves=(1, 3), reducers=4).play()


@pytest.mark.long
def test_above_the_limit_a_run_waits_for_an_answer_and_does_as_it_says(
    synthetic: Simulation, served: ServedAirflow
) -> None:
    """All runs at once, each told what to do once it waits."""
    stage = _forwarding(synthetic)
    dags = {
        name: _DAG.format(name=name, pool=POOL, stage=stage, limit=limit, seconds=seconds)
        for name, (limit, seconds) in _DAGS.items()
    }
    runs = {name: _run_id(NIGHT) for name in _DAGS}
    to_approve, to_reject = runs["asking"], _run_id(NIGHT + dt.timedelta(days=1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SKEWLESS_ROOT", str(served.root))
        for dag_id, night in [*((name, NIGHT) for name in _DAGS), ("asking", NIGHT + dt.timedelta(days=1))]:
            run = record(synthetic, dag_id, night)
            for number in range(1, stage + 1):
                run.decide(number, plan_next_stage)
        asked = question(run.decision(stage), forwarded_share(run.decision(stage)))
    served.rest.call("POST", "/pools", {"name": POOL, "slots": 4, "include_deferred": False})
    served.add_dags(dags)
    for dag_id, run_id in [*runs.items(), ("asking", to_reject)]:
        served.rest.trigger(dag_id, run_id)
    for run_id in (to_approve, to_reject):
        _await_question(served, run_id)
    for dag_id in ("permitting", "hurried"):
        served.await_end(dag_id, runs[dag_id])

    assert served.rest.states("permitting", runs["permitting"]) == DONE, "below the limit nobody is asked"
    assert _refused(served, "GET", "permitting", runs["permitting"]) == httpx.codes.NOT_FOUND
    in_vain = {"approve": "failed", "stage": "upstream_failed"}
    assert served.rest.states("hurried", runs["hurried"]) == in_vain, "nobody answered in time"

    assert served.rest.states("asking", to_approve) == {"approve": "awaiting_input", "stage": ""}
    pool = served.rest.call("GET", f"/pools/{POOL}")
    assert pool["running_slots"] == pool["queued_slots"] == 0, "who waits takes no worker"
    request = served.rest.of_run("GET", "asking", to_approve, HITL)
    assert request["subject"].startswith("May stage ")
    assert (request["body"], request["options"]) == (asked, ["Approve", "Reject"])
    assert not request["response_received"]
    _answer(served, to_approve, "Approve")
    _answer(served, to_reject, "Reject")
    answer = {"chosen_options": ["Approve"], "params_input": {}}
    assert _refused(served, "PATCH", "asking", to_reject, answer) == httpx.codes.CONFLICT, "an answer counts once"
    served.await_end("asking", to_approve)
    assert served.rest.states("asking", to_approve) == DONE

    assert served.await_end("asking", to_reject) == "failed"
    assert served.rest.states("asking", to_reject) == in_vain
    (approve,) = [one for one in served.rest.tasks("asking", to_reject) if one.task == "approve"]
    assert approve.tries == 1, "a person is not asked again because the answer was no"
    served.rest.of_run("POST", "asking", to_reject, "/clear", {"dry_run": False, "only_failed": True})
    _await_question(served, to_reject, attempt=2)
    request = served.rest.of_run("GET", "asking", to_reject, HITL)
    assert request["body"] == asked
    assert not request["response_received"]
    _answer(served, to_reject, "Approve")
    served.await_end("asking", to_reject)
    assert served.rest.states("asking", to_reject) == DONE


def test_what_is_asked_is_the_decision_as_text_without_markup(synthetic: Simulation) -> None:
    decision = synthetic.decisions[0].model_copy(
        update={"sentence": "pin '<img src=x onerror=alert(1)>'\n\n# and [more](javascript:x)"}
    )
    asked = question(decision, 0.25)
    assert asked.startswith("    Stage 1 has ")
    assert "forwards 25.0% of them" in asked
    assert "\n" not in asked


def test_an_observed_decision_forwards_nothing(synthetic: Simulation) -> None:
    decision = synthetic.decisions[_forwarding(synthetic) - 1]
    assert forwarded_share(decision) > 0
    assert forwarded_share(decision.model_copy(update={"observed": True})) == 0


def test_nobody_is_asked_twice() -> None:
    operator = ApproveForwardingOperator(task_id="approve", stage=1, limit=0.1, retries=3)
    assert (operator.retries, operator.fail_on_reject) == (0, True)


def _await_question(airflow: ServedAirflow, run_id: str, attempt: int = 1) -> None:
    """Wait until an attempt has asked, and the scheduler knows.

    Airflow takes the end of the process that has asked for a failure of the task if the answer is there before the
    scheduler has looked, which is once a second: no person is that fast.
    """
    await_that(
        lambda: (
            airflow.rest.states("asking", run_id).get("approve") == "awaiting_input"
            and airflow.has_noticed("asking", run_id, "approve", attempt)
        ),
        f"a question of {run_id}",
    )


def _answer(airflow: ServedAirflow, run_id: str, option: str) -> None:
    airflow.rest.of_run("PATCH", "asking", run_id, HITL, {"chosen_options": [option], "params_input": {}})


def _refused(airflow: ServedAirflow, method: str, dag_id: str, run_id: str, body: dict[str, Any] | None = None) -> int:
    """How Airflow answers a request about the question of a run that it refuses."""
    with pytest.raises(httpx.HTTPStatusError) as refused:
        airflow.rest.of_run(method, dag_id, run_id, HITL, body)
    return refused.value.response.status_code


def _forwarding(run: Simulation) -> int:
    """A stage whose decision forwards something."""
    return next(one.stage for one in run.decisions if forwarded_share(one) > 0)


def _run_id(night: dt.datetime) -> str:
    """The id that ``record`` knows a night's run by."""
    return DagRun.generate_run_id(run_type=DagRunType.MANUAL, logical_date=night, run_after=night)


# The plan tasks, run by Airflow over the documents of a run that was reduced by arithmetic alone.

LAST = 4

_PLANNING = f"""
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


@pytest.fixture
def recorded(synthetic: Simulation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunDirectory:
    """The run directory that a Spark run of it would have left, without the decisions."""
    monkeypatch.setenv("SKEWLESS_ROOT", str(tmp_path))
    return record(synthetic, "planning")


@airflow_setting.IN_PROCESS
@pytest.mark.usefixtures("airflow_database")
def test_plan_tasks_decide_what_the_planner_decides_and_skip_what_is_not_needed(
    synthetic: Simulation, recorded: RunDirectory, dags_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (dags_folder / "planning.py").write_text(_PLANNING)
    done = DagBag(dags_folder / "planning.py").dags["planning"].test(logical_date=NIGHT, run_after=NIGHT)
    states = [str(done.get_task_instance(f"plan_{stage}").state) for stage in range(1, LAST + 1)]
    needed = len(synthetic.reports) - 1
    assert needed < LAST - 1, "the run should end before the stages are used up"
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
        page = f"/skewless/dags/planning/runs/{quote(done.run_id, safe='')}/tasks/plan_{stage}/decision"
        assert ti.xcom_pull(task_ids=ti.task_id, key=DecisionLink().xcom_key) == page, "a skipped task has its link too"


def test_the_log_of_a_decision_folds_backlog_candidates_and_plan_and_ends_with_the_decision(
    synthetic: Simulation,
) -> None:
    report, decision = synthetic.reports[0], synthetic.decisions[0]
    lines = list(planning_lines(report, decision))
    assert [line for line in lines if line.startswith("::group::")] == [
        f"::group::Backlog of stage 0, {report.backlog_rows:,} rows in 4 tasks",
        f"::group::Candidates for stage 1, {decision.queued_rows:,} rows queued",
        "::group::Plan of stage 1",
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
    assert lines[-2:] == ["::endgroup::", f"Decision about stage 1, policy adaptive: {decision.sentence}"]


def test_a_decision_to_finish_has_no_candidates_to_show(synthetic: Simulation) -> None:
    last: Decision = synthetic.decisions[-1]
    assert last.next_plan is None
    lines = list(planning_lines(synthetic.reports[-1], last))
    assert not any("Candidates" in line for line in lines)
    assert lines[-1].endswith(f": {last.sentence}")


def _thousands(*numbers: int) -> list[str]:
    return [f"{number:,}" for number in numbers]
