"""Mode ``observe``: the policy decides, and rows go as with policy static."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from benchmarks.simulation import Simulation
from skewless.planner.policies import POLICIES
from skewless.replay.replay import replay
from tests.tiers import mostly_long
from tests.unit.synthetic import simulated, zipf_rows

KEYS = zipf_rows(400, 1.3, 20_000)
WORDS = {"policy", "sentence"}


def _observed(policy: str, **routing: Any) -> Simulation:
    run = simulated(KEYS, reducers=6, policy=policy, **routing)
    spec = run.job.spec.model_copy(update={"mode": "observe"})
    return replace(run, job=run.job.model_copy(update={"spec": spec})).play()


@pytest.fixture(scope="module")
def static() -> Simulation:
    return simulated(KEYS, reducers=6, policy="static").play()


@pytest.fixture(scope="module")
def adaptive() -> Simulation:
    return _observed("adaptive")


@pytest.mark.parametrize("policy", mostly_long(sorted(POLICIES), "doubling", "partial_key", "adaptive"))
def test_rows_go_as_with_policy_static_row_for_row(policy: str, static: Simulation) -> None:
    observed = _observed(policy)
    assert [plan.model_dump(exclude=WORDS) for plan in observed.plans] == [
        plan.model_dump(exclude=WORDS) for plan in static.plans
    ]
    assert {plan.policy for plan in observed.plans} == {"static"}
    assert observed.reports == static.reports


def test_a_decision_names_what_would_have_been_done_with_its_prediction(adaptive: Simulation) -> None:
    first = adaptive.decisions[0]
    (chosen,) = [one for one in first.candidates if one.chosen]
    assert chosen.action != "stand still"
    assert (first.observed, first.policy) == (True, "adaptive")
    assert first.sentence.startswith(f"observed, not enacted: {chosen.action}")
    assert first.certificate is not None
    assert first.certificate.makespan_rows == pytest.approx(chosen.makespan_rows)


def test_strict_doubling_is_observed_on_the_ring_that_rows_go_by(static: Simulation) -> None:
    """Enacted it would begin with one token each; observed it decides about the tokens that there are."""
    observed = _observed("doubling", strict=True)
    assert observed.reports == static.reports
    assert observed.decisions[0].sentence.startswith("observed, not enacted: double: double the tokens")


def test_the_last_decision_says_that_nothing_is_left(adaptive: Simulation) -> None:
    last = adaptive.decisions[-1]
    assert (last.next_plan, last.observed) == (None, False)


def test_an_observed_run_can_be_replayed_under_its_policy(adaptive: Simulation) -> None:
    played = replay(adaptive.job, adaptive.reports, "adaptive")
    static = replay(adaptive.job, adaptive.reports, "static")
    assert played.makespan_over_bound is not None
    assert static.makespan_over_bound is not None
    assert played.makespan_over_bound < static.makespan_over_bound
