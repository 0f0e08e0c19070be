"""A decision that would forward much waits for somebody; one that does not goes on at once.

A whole Airflow waits and is answered through its API, as by the page *Required actions*.
"""

from __future__ import annotations

import datetime as dt
from typing import Any

import httpx
import pytest
from airflow.models.dagrun import DagRun
from airflow.utils.types import DagRunType

from benchmarks.simulation import Simulation
from skewless.planner.planner import plan_next_stage
from skewless_airflow.operators.approval import ApproveForwardingOperator, forwarded_share, question
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
    served.rest.ensure_pool(POOL, 4)
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
