"""One of the trials of ``make faults --only airflow``: the scheduler is killed while a stage runs, and comes back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.faults.airflow_kills import trials
from tests.faults.airflow_nights import AirflowHarness

pytestmark = pytest.mark.timeout(1200)


@pytest.fixture
def harness() -> Iterator[AirflowHarness]:
    one = AirflowHarness()
    yield one
    one.close()


@pytest.mark.long
def test_a_run_whose_scheduler_was_killed_ends_with_the_right_result(harness: AirflowHarness) -> None:
    trial = next(one for one in trials() if (one.step, one.fault) == ("stage", "of the scheduler"))
    assert trial.act(harness, trial.seed) == "right"


def test_each_death_is_tried_and_each_at_a_moment_of_its_own() -> None:
    found = trials()
    assert len(found) >= 12
    assert len({(one.step, one.fault) for one in found}) == len({one.seed for one in found}) == len(found)
