"""Run directories: who may enter them, by which path they are named, and what they say of the times of steps."""

import datetime as dt
import grp
import os
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from skewless.documents.commit import StepCommit
from skewless.documents.step_documents import Failure, Span, StepTimes
from skewless.errors import RunDirectoryError
from skewless.publication.retention import Limits, fates
from skewless.run.directory import RunDirectory, stage_step
from skewless.run.folder import RUN_GROUP, RUNS_FOLDER, absolute_root, as_written, open_location, runs_below
from skewless.run.step_times import timed, timed_step, times_of, waterfall
from skewless_cli import run_view
from tests.unit.synthetic import job

NOBODY, GROUP = 65534, "users"


@pytest.fixture
def place() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def document(rows: int = 1) -> StepCommit:
    return StepCommit(step="s", attempt="a", files=(), counts={"rows": rows})


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def tries(code: str, folder: Path, *groups: int) -> int:
    ran = subprocess.run(
        ["/bin/sh", "-c", code, "sh", str(folder)], check=False, capture_output=True,
        user=NOBODY, group=NOBODY, extra_groups=groups, umask=0o022,
    )  # fmt: skip
    return ran.returncode


READS = 'cat "$1/job.json"'
WRITES = 'mkdir -p "$1/stages/0000/attempts/a/_temporary/0" && echo rows >"$1/stages/0000/attempts/a/_temporary/0/part"'


def test_a_run_directory_is_its_owners_alone_and_the_folder_above_it_is_not(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        RunDirectory(str(tmp_path / "runs" / "one")).write_once("job.json", document())
        assert mode(tmp_path / "runs" / "one") == 0o700
        assert mode(tmp_path / "runs") == 0o755
    finally:
        os.umask(before)


def test_a_folder_that_is_there_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir(mode=0o755)
    RunDirectory(str(tmp_path / "mine"), GROUP).write_once("job.json", document())
    assert mode(tmp_path / "mine") == 0o755


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start processes of other users")
def test_the_group_of_a_setting_reads_and_writes_below_it_and_nobody_else_does(place: Path) -> None:
    ident, run = grp.getgrnam(GROUP).gr_gid, RunDirectory(str(place / "runs" / "one"), GROUP)
    run.write_once("job.json", document())
    assert mode(place / "runs" / "one") == 0o2770
    run.new_attempt(stage_step(0)).write("report.json", document())
    assert tries(READS, place / "runs" / "one", ident) == 0
    assert tries(WRITES, place / "runs" / "one", ident) == 0
    written = place / "runs/one/stages/0000/attempts/a/_temporary/0/part"
    assert (written.stat().st_uid, written.stat().st_gid) == (NOBODY, ident)
    assert tries(READS, place / "runs" / "one") != 0
    assert tries(WRITES, place / "runs" / "one") != 0
    assert not list(place.rglob("*.making"))
    assert not list(place.rglob("probe"))


def test_a_group_that_there_is_not_is_told(tmp_path: Path) -> None:
    run = RunDirectory(str(tmp_path / "run"), "no-such-group")
    with pytest.raises(
        RunDirectoryError, match=rf"given to the group 'no-such-group', but got no such group; .*{RUN_GROUP}"
    ):
        run.write_once("job.json", document())
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("root", ["/data", "/data/", "s3a://lake/data", "s3a://lake/data/"])
def test_runs_are_below_the_data_root_unless_another_place_is_named(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(RUNS_FOLDER, raising=False)
    assert absolute_root(root) == root.rstrip("/")
    assert runs_below(root) == f"{root.rstrip('/')}/runs"
    monkeypatch.setenv(RUNS_FOLDER, "s3://other/runs/")
    assert runs_below(root) == "s3://other/runs"


# A path keeps the scheme, the bucket and the account that its user wrote.

SCHEMES = ["s3a://bucket", "s3://bucket", "gs://bucket", "abfss://box@account.dfs.core.windows.net", "memory://place"]


@pytest.mark.parametrize("place", SCHEMES)
@pytest.mark.parametrize("below", ["", "/f", "/f/g h/date=1/x.parquet", "/a@b/c:d"])
def test_what_a_file_system_strips_is_put_back_as_it_was(place: str, below: str) -> None:
    fs, inner = open_location(f"{place}{below}")
    assert as_written(fs, f"{place}/elsewhere", inner) == f"{place}{below}"


def test_a_local_path_stays_a_path(tmp_path: Path) -> None:
    for location in (str(tmp_path), f"file://{tmp_path}"):
        fs, inner = open_location(location)
        assert as_written(fs, location, f"{inner}/x") == f"{tmp_path}/x"


def test_a_path_of_another_bucket_is_refused() -> None:
    fs, inner = open_location("s3a://bucket-two/x")
    with pytest.raises(RunDirectoryError, match="s3a://bucket: expected a path in it"):
        as_written(fs, "s3a://bucket/y", inner)


# Those on object stores are in test_object_stores.py: they have a client of their own.
@pytest.mark.parametrize("place", ["memory://place"])
def test_a_run_directory_is_named_as_it_was_given(place: str) -> None:
    location = f"{place}/runs/nightly/run-1"
    run = RunDirectory(f"{location}/")
    assert (str(run), run.path("states/0")) == (location, f"{location}/states/0")
    run.write_once("failures/a.json", Failure(exit_code=1, sentence="It failed."))
    assert RunDirectory(str(run)).read("failures/a.json", Failure).sentence == "It failed."
    with pytest.raises(RunDirectoryError, match=f"run directory {location}: there is no job.json"):
        run.job()


@pytest.mark.parametrize("place", ["memory://place"])
def test_runs_that_are_listed_are_named_as_their_folder_was(place: str) -> None:
    RunDirectory(f"{place}/runs/nightly/run-1").write_once("job.json", job([10]))
    (fate,) = fates(f"{place}/runs", dt.datetime(2030, 1, 1, tzinfo=dt.UTC), Limits())
    assert fate.location == f"{place}/runs/nightly/run-1"


# Times of steps: what was measured and no more, written once, and never a reason to fail.


class Ticks:
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
