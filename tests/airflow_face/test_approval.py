"""A decision that would forward much waits for somebody; one that does not goes on at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.simulation import Simulation
from skewless.run_directory import RunDirectory
from skewless_airflow.approval import ApproveForwardingOperator, forwarded_share, question
from tests.airflow_face.recorded_run import record
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
