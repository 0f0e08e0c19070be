"""Each action of ``adaptive`` is forbidden where it was taken, and only there."""

from __future__ import annotations

import pytest

from benchmarks.actions import ACTIONS, CASES, Case, forbidding, measured, page
from skewless.planner.policies import POLICIES
from tests.tiers import mostly_long

ADDED = next(case for case in CASES if "up to 32" in case.words)
BUCKETS = next(case for case in CASES if case.words == "300 keys alike, none named")


@pytest.mark.parametrize("case", mostly_long(CASES, ADDED, BUCKETS), ids=lambda case: case.words)
def test_an_action_that_is_forbidden_is_not_taken(case: Case) -> None:
    _, taken = case.play()
    for proposals in ACTIONS.values():
        if taken & set(proposals):
            assert not case.play(proposals)[1] & set(proposals)


def test_reducers_that_join_and_buckets_for_full_tasks_shorten_runs() -> None:
    every, *without = measured([ADDED])
    assert [one.without for one in without] == ["add reducers"]
    assert every.figures.load < 1.1 < without[0].figures.load
    found = {one.without: one.figures for one in measured([BUCKETS])}
    assert found[""].load < min(found["split full tasks"].load, found["change tokens"].load)
    assert found[""].price < found["split full tasks"].price
    assert f"| {every.figures} | add reducers {without[0].figures} |" in page([every, *without])


def test_what_was_forbidden_is_allowed_again() -> None:
    before = POLICIES["adaptive"]
    with pytest.raises(ZeroDivisionError), forbidding(["rebalance"]):
        raise ZeroDivisionError
    assert POLICIES["adaptive"] == before
