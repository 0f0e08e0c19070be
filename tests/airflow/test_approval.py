"""A decision that would forward much waits for somebody; one that does not goes on at once.

A whole Airflow waits and is answered through its API, as by the page *Required actions*.
"""

from __future__ import annotations

import datetime as dt
from typing import Any, NamedTuple

import httpx
import pytest
from airflow.models.dagrun import DagRun
from airflow.utils.types import DagRunType

from benchmarks.simulation import Simulation
from skewless.planner.planner import plan_next_stage
from skewless_airflow.operators.planning import ApproveForwardingOperator, forwarded_share, question
from tests.airflow.recorded_run import NIGHT, record
from tests.served_airflow import ServedAirflow, await_that
from tests.unit.synthetic import simulated, zipf_rows

_DAG = """
import datetime as dt
from airflow.sdk import DAG, task
from skewless_airflow.operators.planning import ApproveForwardingOperator

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


class Answers(NamedTuple):
    """What became of a run that nobody had to be asked about, of one that nobody answered, and of three answers."""

    decided: str
    waiting: dict[str, Any]
    pool: dict[str, Any]
    request: dict[str, Any]
    permitted: dict[str, str]
    permitted_request: int
    unanswered: dict[str, str]
    approved: dict[str, str]
    rejected: dict[str, str]
    rejected_tries: int
    rejected_run: str
    answered_twice: int
    asked_again: dict[str, Any]
    approved_after_all: dict[str, str]


@pytest.fixture(scope="module")
def synthetic() -> Simulation:
    return simulated(zipf_rows(500, 1.2, 20_000), waves=(1, 3), reducers=4).play()


@pytest.fixture(scope="module")
def answers(synthetic: Simulation, served: ServedAirflow) -> Answers:
    """All runs at once, each told what to do once it waits."""
    stage = _forwarding(synthetic)
    dags = {
        name: _DAG.format(name=name, pool=POOL, stage=stage, limit=limit, seconds=seconds)
        for name, (limit, seconds) in _DAGS.items()
    }
    runs = {name: _run_id(NIGHT) for name in _DAGS}
    to_reject = _run_id(NIGHT + dt.timedelta(days=1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SKEWLESS_ROOT", str(served.root))
        for dag_id, night in [*((name, NIGHT) for name in _DAGS), ("asking", NIGHT + dt.timedelta(days=1))]:
            run = record(synthetic, dag_id, night)
            for number in range(1, stage + 1):
                run.decide(number, plan_next_stage)
        decided = question(run.decision(stage), forwarded_share(run.decision(stage)))
    served.rest.ensure_pool(POOL, 4)
    served.add_dags(dags)
    return _played(served, runs, to_reject, decided)


def test_below_the_limit_nobody_is_asked(answers: Answers) -> None:
    assert answers.permitted == {"approve": "success", "stage": "success"}
    assert answers.permitted_request == httpx.codes.NOT_FOUND


def test_above_it_the_run_waits_and_takes_no_worker(answers: Answers) -> None:
    assert answers.waiting == {"approve": "awaiting_input", "stage": ""}
    assert answers.pool["running_slots"] == answers.pool["queued_slots"] == 0


def test_whoever_is_asked_sees_the_decision_in_words(answers: Answers) -> None:
    assert answers.request["subject"].startswith("May stage ")
    assert answers.request["body"] == answers.decided
    assert answers.request["options"] == ["Approve", "Reject"]
    assert not answers.request["response_received"]


def test_approved_the_stage_runs(answers: Answers) -> None:
    assert answers.approved == {"approve": "success", "stage": "success"}


def test_rejected_the_run_fails_and_the_stage_does_not_run(answers: Answers) -> None:
    assert answers.rejected == {"approve": "failed", "stage": "upstream_failed"}
    assert answers.rejected_run == "failed"
    assert answers.rejected_tries == 1, "a person is not asked again because the answer was no"


def test_an_answer_counts_once(answers: Answers) -> None:
    assert answers.answered_twice == httpx.codes.CONFLICT


def test_without_an_answer_in_time_the_run_fails(answers: Answers) -> None:
    assert answers.unanswered == {"approve": "failed", "stage": "upstream_failed"}


def test_a_run_that_was_rejected_asks_again_when_it_is_cleared(answers: Answers) -> None:
    assert answers.asked_again["body"] == answers.decided
    assert not answers.asked_again["response_received"]
    assert answers.approved_after_all == {"approve": "success", "stage": "success"}


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


def _played(airflow: ServedAirflow, runs: dict[str, str], to_reject: str, decided: str) -> Answers:
    """Trigger all runs, look at those that wait, answer, and look again."""
    to_approve = runs["asking"]
    for dag_id, run_id in [*runs.items(), ("asking", to_reject)]:
        airflow.rest.trigger(dag_id, run_id)
    for run_id in (to_approve, to_reject):
        _await_question(airflow, run_id)
    for dag_id in ("permitting", "hurried"):
        airflow.await_end(dag_id, runs[dag_id])
    waiting = airflow.rest.states("asking", to_approve)
    pool = airflow.rest.call("GET", f"/pools/{POOL}")
    request = airflow.rest.of_run("GET", "asking", to_approve, HITL)
    _answer(airflow, to_approve, "Approve")
    _answer(airflow, to_reject, "Reject")
    answered_twice = _refused(airflow, to_reject, "Approve")
    airflow.await_end("asking", to_approve)
    rejected_run = airflow.await_end("asking", to_reject)
    rejected = airflow.rest.states("asking", to_reject)
    (approve,) = [one for one in airflow.rest.tasks("asking", to_reject) if one.task == "approve"]
    airflow.rest.of_run("POST", "asking", to_reject, "/clear", {"dry_run": False, "only_failed": True})
    _await_question(airflow, to_reject, attempt=2)
    asked_again = airflow.rest.of_run("GET", "asking", to_reject, HITL)
    _answer(airflow, to_reject, "Approve")
    airflow.await_end("asking", to_reject)
    return Answers(
        decided=decided, waiting=waiting, pool=pool, request=request,
        permitted=airflow.rest.states("permitting", runs["permitting"]),
        permitted_request=_status(airflow, "permitting", runs["permitting"]),
        unanswered=airflow.rest.states("hurried", runs["hurried"]),
        approved=airflow.rest.states("asking", to_approve),
        rejected=rejected, rejected_tries=approve.tries, rejected_run=rejected_run, answered_twice=answered_twice,
        asked_again=asked_again, approved_after_all=airflow.rest.states("asking", to_reject),
    )  # fmt: skip


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


def _refused(airflow: ServedAirflow, run_id: str, option: str) -> int:
    with pytest.raises(httpx.HTTPStatusError) as refused:
        _answer(airflow, run_id, option)
    return refused.value.response.status_code


def _status(airflow: ServedAirflow, dag_id: str, run_id: str) -> int:
    """How Airflow answers who asks for the question of a run."""
    with pytest.raises(httpx.HTTPStatusError) as refused:
        airflow.rest.of_run("GET", dag_id, run_id, HITL)
    return refused.value.response.status_code


def _forwarding(run: Simulation) -> int:
    """A stage whose decision forwards something."""
    return next(one.stage for one in run.decisions if forwarded_share(one) > 0)


def _run_id(night: dt.datetime) -> str:
    """The id that ``record`` knows a night's run by."""
    return DagRun.generate_run_id(run_type=DagRunType.MANUAL, logical_date=night, run_after=night)
