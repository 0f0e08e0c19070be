"""What B8 makes of the times that the steps of runs record; no Spark needed."""

from __future__ import annotations

import pytest

from benchmarks.fresh_process import PLAIN
from benchmarks.overhead import DEMO, EMPTY, OWN, between_stages, medians, merged, page, verdicts
from skewless.documents.steps import Span, StepTimes


def step(name: str, started: float, seconds: float, *spans: tuple[str, float, float]) -> StepTimes:
    parts = tuple(Span(name=part, start=start, seconds=of_part) for part, start, of_part in spans)
    return StepTimes(step=name, started=started, seconds=seconds, spans=parts)


STEPS = [
    step("stage 0", 100.0, 10.0, ("Spark job", 2.0, 2.0), ("Spark job", 3.0, 6.0)),
    step("decision 1", 110.5, 0.5),
    step("stage 1", 111.5, 8.0, ("build the query", 0.0, 1.0), ("Spark job", 2.0, 4.0)),
]


def test_spans_that_overlap_or_touch_are_one() -> None:
    assert merged([(5.0, 6.0), (0.0, 2.0), (1.0, 3.0), (3.0, 4.0)]) == [(0.0, 4.0), (5.0, 6.0)]
    assert merged([]) == []


def test_between_two_stages_is_from_the_last_job_of_one_to_the_first_of_the_next() -> None:
    assert between_stages(STEPS) == pytest.approx(113.5 - 109.0)


def test_jobs_of_a_step_that_run_side_by_side_count_once() -> None:
    found = medians([STEPS, STEPS, STEPS])
    assert found["stage 0"] == {"before_seconds": 0.0, "step_seconds": 10.0, "spark_seconds": 7.0}
    assert found["stage 1"]["before_seconds"] == pytest.approx(0.5)


def test_the_aims_are_judged_on_medians_and_the_page_has_these() -> None:
    found = {
        "rows": 10, "keys": 2, "repetitions": 3, "setting": {"cores": 2},
        "between_stages": {OWN: [9.0, 3.4, 3.6], EMPTY: [2.5]},
        "trigger_to_published": {DEMO: [91.0], PLAIN: [30.0, 31.0, 10.0]},
    }  # fmt: skip
    judged = {(one.cell, one.met) for one in verdicts(found)}
    assert judged == {(OWN, False), ("the demo's job", False)}
    text = page(found)
    assert "| a Spark of its own | 3.60 |" in text
