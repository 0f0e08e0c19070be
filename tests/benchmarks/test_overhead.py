"""What B8 makes of the times of a run's tasks and of an event log; no Spark needed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.overhead import EMPTY, WAYS, Step, between_stages, job_spans, medians, merged, steps_of
from benchmarks.overhead_page import page, sentence


def test_spans_that_overlap_or_touch_are_one() -> None:
    assert merged([(5.0, 6.0), (0.0, 2.0), (1.0, 3.0), (3.0, 4.0)]) == [(0.0, 4.0), (5.0, 6.0)]
    assert merged([]) == []


def test_the_seconds_of_a_task_are_its_jobs_and_what_lies_around_them() -> None:
    tasks = [("stage_00.run", 10.0, 20.0), ("prepare", 1.0, 9.0)]
    jobs = [(12.0, 14.0), (13.0, 15.0), (17.0, 18.0), (30.0, 31.0)]
    prepare, stage = steps_of(tasks, jobs)
    assert (prepare.task, prepare.spark_seconds, prepare.first_job_seconds) == ("prepare", 0.0, None)
    assert stage == Step("stage_00.run", 1.0, 10.0, 4.0, 2.0, 2.0, 2.0)
    assert stage.outside_seconds == pytest.approx(6.0)
    parts = (stage.first_job_seconds, stage.between_jobs_seconds, stage.after_jobs_seconds)
    assert sum(part or 0.0 for part in parts) == pytest.approx(stage.outside_seconds)


def test_between_two_stages_is_from_the_last_job_of_one_to_the_first_of_the_next() -> None:
    tasks = [("stage_00.run", 10.0, 20.0), ("stage_01.plan", 20.5, 21.0), ("stage_01.run", 21.5, 30.0)]
    jobs = [(12.0, 14.0), (13.0, 19.0), (23.5, 24.0), (25.0, 29.0), (40.0, 41.0)]
    assert between_stages(tasks, jobs) == pytest.approx(4.5)


def test_jobs_are_read_from_all_event_logs_also_from_one_that_is_being_written(tmp_path: Path) -> None:
    events = [
        {"Event": "SparkListenerJobStart", "Job ID": 0, "Submission Time": 1_000},
        {"Event": "SparkListenerTaskStart", "Stage ID": 0},
        {"Event": "SparkListenerJobEnd", "Job ID": 0, "Completion Time": 2_500},
        {"Event": "SparkListenerJobStart", "Job ID": 1, "Submission Time": 3_000},
    ]
    text = "\n".join(json.dumps(event) for event in events)
    (tmp_path / "local-1").write_text(text)
    (tmp_path / "local-2.inprogress").write_text(text + '\n{"Event": "SparkListenerJobEnd", "Job ')
    assert job_spans(tmp_path) == [(1.0, 2.5), (1.0, 2.5)]


def test_the_page_has_both_ways_and_the_figure_per_stage() -> None:
    stage = Step("stage_00.run", 1.0, 10.0, 4.0, 2.0, 2.0, 2.0)
    skipped = Step("stage_01.run", 1.0, 3.0, 0.0, None, None, None)
    found = medians([[stage, skipped]] * 3)
    assert found["outside_seconds_per_stage"] == 6.0
    assert found["outside_seconds"] == 11.0
    document = {
        "rows": 10, "keys": 2, "repetitions": 3, "setting": {"cores": 2}, "ways": dict.fromkeys(WAYS, found),
        "between_stages": {**dict.fromkeys(WAYS, 2.5), EMPTY: 1.5},
    }  # fmt: skip
    assert "Spark Connect 2.5 s; tasks that do nothing 1.5 s" in sentence(document)
    assert sentence(document).count("6.0 s per stage and 11.0 s of the 15.0 s of the run") == 2
    assert "| stage_01.run | 1.00 | 3.00 | 0.00 | 3.00 |  |  |  |" in page(document)
