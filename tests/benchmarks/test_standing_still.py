"""Fifty random workloads: no policy is worse than standing still."""

from __future__ import annotations

import pytest

from benchmarks.standing_still import (
    FEW,
    ORDERED_AT_WORST,
    ORDERS,
    RANDOM_AT_WORST,
    Line,
    Order,
    document,
    line,
    page,
    summaries,
    workload,
)
from skewless.planner.policies import POLICIES
from tests.tiers import mostly_long


@pytest.mark.long
@pytest.mark.parametrize("order", ORDERS)
def test_no_policy_costs_more_than_standing_still_over_whole_runs(order: Order) -> None:
    lines = [line(number) for number in range(FEW) if ORDERS[number % len(ORDERS)] == order]
    found = list(summaries(lines))
    assert {one.policy for one in found} == set(POLICIES) - {"static"}
    assert [one for one in found if not one.met] == []


@pytest.mark.parametrize("first", mostly_long(range(0, 1_000, FEW), 0))
def test_adaptive_ends_no_later_than_static(first: int) -> None:
    for number in range(first, first + FEW):
        one = workload(number)
        limit = RANDOM_AT_WORST if one.order == "random" else ORDERED_AT_WORST
        assert one.cost("adaptive") <= limit * one.cost("static"), f"workload {number}: {one.words}, {one.order}"


@pytest.mark.parametrize("number", mostly_long([127, 588, 828, 984], 127, 984))
def test_no_budget_is_set_that_only_a_largest_task_that_is_overestimated_would_pay_for(number: int) -> None:
    assert workload(number).cost("bounded_load") <= workload(number).cost("static")


@pytest.mark.parametrize("policy", mostly_long(sorted(POLICIES), "adaptive"))
def test_no_decision_is_worse_on_its_own_numbers(policy: str) -> None:
    for number in range(4):
        for decision in workload(number).run(policy).decisions:
            for chosen in (one for one in decision.candidates if one.chosen):
                assert chosen.cost_rows <= decision.candidates[0].cost_rows
                assert chosen.makespan_rows <= decision.candidates[0].makespan_rows


def test_a_workload_is_the_same_every_time() -> None:
    assert (workload(7).keys == workload(7).keys).all()
    assert {workload(number).order for number in range(4)} == set(ORDERS)


def test_a_policy_that_is_worse_is_told() -> None:
    worse = Line(3, "of two", "drifting", 2, 0.0, True, 100.0, {"halving": 1.2, "adaptive": 0.9})
    assert [one.met for one in summaries([worse])] == [False, True]
    assert "MISSED: halving, drifting." in page([worse])
    better = Line(2, "of two", "drifting", 2, 0.0, True, 100.0, {"halving": 0.9, "adaptive": 0.9})
    assert not document([better], [worse])["verdicts"][0]["met"], "held out"
