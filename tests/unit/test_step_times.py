"""Times of steps: what was measured and no more, written once, and never a reason to fail."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from skewless.documents.steps import Span, StepTimes
from skewless.run.directory import RunDirectory
from skewless.run.step_times import timed, timed_step, times_of, waterfall
from skewless_cli import run_view


class Ticks:
    """A clock that is a second further each time that it is looked at."""

    def __init__(self, start: float) -> None:
        self._ticks: Iterator[float] = (start + number for number in range(1_000))

    def __call__(self) -> float:
        return next(self._ticks)


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return RunDirectory(str(tmp_path / "run"))


def test_a_step_records_its_parts_and_what_is_in_none_of_them(run: RunDirectory) -> None:
    with timed_step(run, "merge", Ticks(100.0)) as clock:
        with timed("outer"), timed("inner"):
            pass
        clock.add("Spark job", 101.0, 102.5, tasks=4)
        clock.add("of another clock", 99.0, 100.5)
    (times,) = times_of(run)
    assert (times.step, times.started, times.seconds, times.ended) == ("merge", 100.0, 5.0, 105.0)
    assert [(span.name, span.start, span.seconds, span.tasks) for span in times.spans] == [
        ("outer", 1.0, 3.0, None), ("Spark job", 1.0, 1.5, 4), ("inner", 2.0, 1.0, None),
    ]  # fmt: skip
    assert times.unmeasured == 2.0
    lines = [(line.name, line.depth) for line in waterfall([times])]
    assert lines == [("merge", 0), ("outer", 1), ("Spark job", 2), ("inner", 2), ("in none of these", 1)]


def test_planning_is_what_lies_before_the_first_job_of_a_query(run: RunDirectory) -> None:
    with timed_step(run, "merge", Ticks(0.0)) as clock:
        clock.add("query", 1.0, 9.0)
        clock.add("query", 10.0, 11.0)
        for started in (6.0, 4.0):
            clock.add("job", started, started + 1)
        clock.split_off("plan", "query", "job")
    (times,) = times_of(run)
    assert [(span.start, span.seconds) for span in times.spans if span.name == "plan"] == [(1.0, 3.0)]


def test_the_first_attempt_that_ends_well_is_recorded(run: RunDirectory) -> None:
    with pytest.raises(ZeroDivisionError), timed_step(run, "validate", Ticks(0.0)):
        raise ZeroDivisionError
    assert times_of(run) == []
    for start in (10.0, 20.0):
        with timed_step(run, "validate", Ticks(start)):
            pass
    assert [times.started for times in times_of(run)] == [10.0]


def test_outside_a_step_nothing_is_measured_and_no_step_fails_for_its_times(tmp_path: Path) -> None:
    with timed("nothing"):
        pass
    (tmp_path / "file").write_text("no folder")
    with timed_step(RunDirectory(str(tmp_path / "file")), "merge", Ticks(0.0)), timed("part"):
        pass
    run = RunDirectory(str(tmp_path / "run"))
    (tmp_path / "run/times").mkdir(parents=True)
    (tmp_path / "run/times/merge.json").write_text("{")
    assert times_of(run) == []


def test_the_waterfall_shows_what_lay_between_two_steps(run: RunDirectory) -> None:
    steps = [
        StepTimes(step="stage 0", started=10.0, seconds=4.0, spans=(Span(name="commit", start=3.0, seconds=0.5),)),
        StepTimes(step="decision 1", started=15.5, seconds=0.25),
        StepTimes(step="merge", started=15.75, seconds=1.0),
    ]
    for step in steps:
        run.write_once(f"times/{step.step.replace(' ', '-')}.json", step)
    assert [(line.name, line.seconds) for line in waterfall(times_of(run)) if not line.depth] == [
        ("stage 0", 4.0), ("between two steps", 1.5), ("decision 1", 0.25), ("merge", 1.0),
    ]  # fmt: skip
    assert [step["seconds_after_last_step"] for step in run_view.times_as_object(run)] == [None, 1.5, 0.0]
    console = Console(record=True, width=100)
    run_view.show_times(run, console)
    text = console.export_text()
    assert "6.8 s from the first step's start" in text
    assert "     1.50  between two steps" in text
    assert "     3.50    in none of these" in text
    empty = Console(record=True, width=100)
    run_view.show_times(RunDirectory(str(Path(run.root) / "none")), empty)
    assert "no step of this run has recorded its times" in empty.export_text()
