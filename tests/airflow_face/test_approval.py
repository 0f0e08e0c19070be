"""A decision that would forward much waits for somebody; one that does not goes on at once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.models.taskinstance import TaskInstance
from airflow.utils.session import create_session
from sqlalchemy import select

from benchmarks.simulation import Simulation
from skewless.run_directory import RunDirectory
from skewless_airflow.approval import ApproveForwardingOperator, forwarded_share, question
from tests import airflow_setting
from tests.airflow_face.recorded_run import NIGHT, record
from tests.core.synthetic import simulated, zipf_rows

_DAG = """
from airflow.sdk import DAG
from skewless_airflow.approval import ApproveForwardingOperator

with DAG("approving", schedule=None) as dag:
    for name, limit in {"never": 1.0, "always": 0.0}.items():
        ApproveForwardingOperator(task_id=name, stage=STAGE, limit=limit)
"""


@pytest.fixture(scope="module")
def synthetic() -> Simulation:
    return simulated(zipf_rows(500, 1.2, 20_000), waves=(1, 3), reducers=4).play()


@pytest.fixture
def decided(synthetic: Simulation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunDirectory:
    monkeypatch.setenv("SKEWLESS_ROOT", str(tmp_path))
    run = record(synthetic, "approving")
    for stage in range(1, len(synthetic.reports)):
        run.decide(stage)
    return run


def _forwarding(run: Simulation) -> int:
    """A stage whose decision forwards something."""
    return next(one.stage for one in run.decisions if forwarded_share(one) > 0)


@airflow_setting.IN_PROCESS
@pytest.mark.usefixtures("airflow_database", "decided")
def test_only_what_forwards_more_than_the_limit_waits_and_a_rejection_ends_the_run(
    synthetic: Simulation, dags_folder: Path
) -> None:
    (dags_folder / "approving.py").write_text(_DAG.replace("STAGE", str(_forwarding(synthetic))))
    dag = DagBag(dags_folder / "approving.py").dags["approving"]
    with _somebody_who_answers("always", "Reject") as asked:
        done = dag.test(logical_date=NIGHT, run_after=NIGHT)
    states = {ti.task_id: str(ti.state) for ti in done.get_task_instances()}
    assert states == {"never": "success", "always": "failed"}
    (detail,) = asked
    assert "forwards" in detail
    assert synthetic.decisions[_forwarding(synthetic) - 1].sentence[:40] in detail


@contextmanager
def _somebody_who_answers(task_id: str, answer: str) -> Iterator[list[str]]:
    """Wait for a task to ask, and answer as Airflow's API does; what was asked."""
    # Here, for they warn of a deprecation when they are imported, which only tests in process let pass.
    from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
    from airflow.api_fastapi.core_api.datamodels.hitl import UpdateHITLDetailPayload
    from airflow.api_fastapi.core_api.routes.public.hitl import update_hitl_detail

    asked: list[str] = []
    over = threading.Event()

    def answering() -> None:
        while not asked and not over.wait(0.2):
            with create_session() as session:
                ti = session.scalars(select(TaskInstance).where(TaskInstance.task_id == task_id)).one_or_none()
                if ti is None or str(ti.state) != "awaiting_input":
                    continue
                asked.append(str(ti.hitl_detail.body))
                update_hitl_detail(
                    ti.dag_id,
                    ti.run_id,
                    task_id,
                    UpdateHITLDetailPayload(chosen_options=[answer], params_input={}),
                    SimpleAuthManagerUser(username="admin", role="admin"),
                    session,
                )

    somebody = threading.Thread(target=answering)
    somebody.start()
    try:
        yield asked
    finally:
        over.set()
        somebody.join()


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
