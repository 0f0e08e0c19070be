"""What is made of the seconds of decisions, on a run that is a look at the full size."""

from __future__ import annotations

import pytest

from benchmarks import planning

pytestmark = pytest.mark.long


def test_each_decision_of_a_small_run_is_measured_and_the_page_says_whether_the_aim_is_met() -> None:
    document = planning.measure(scale=0.01, apart=False)
    assert {line["ring"] for line in document["lines"]} == {*planning.RINGS}
    assert [line["stage"] for line in document["lines"] if line["ring"] == "default ring"][:3] == [1, 2, 3]
    assert all(0 < line["planner_seconds"] < line["decision_seconds"] for line in document["lines"])
    worst = max(line["planner_seconds"] for line in document["lines"])
    assert f"(1 s allowed: {'NOT MET' if worst > 1 else 'met'})" in planning.sentence(document)
    assert planning.page(document).count("\n| ") == len(planning.RINGS) + 1
