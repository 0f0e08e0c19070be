from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest

from skewless.errors import DocumentError, LostRaceError, RunDirectoryError
from skewless.planner import first_plan, plan_next_stage
from skewless.run_directory import RunDirectory, stage_step
from skewless.step_commit import CommittedFile, StepCommit
from tests.core import synthetic


@pytest.fixture(params=["local", "memory"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> RunDirectory:
    return RunDirectory(str(tmp_path / "run") if request.param == "local" else f"memory://{tmp_path}/run")


@pytest.fixture
def local(tmp_path: Path) -> RunDirectory:
    return RunDirectory(str(tmp_path / "run"))


def numbered(number: int) -> StepCommit:
    return StepCommit(step="s", attempt=str(number), files=(), counts={"rows": number})


def test_the_first_writer_wins(run: RunDirectory) -> None:
    assert run.write_once("a/b.json", numbered(1))
    assert not run.write_once("a/b.json", numbered(2))
    assert run.read("a/b.json", StepCommit) == numbered(1)


def test_of_eight_threads_one_wins(local: RunDirectory) -> None:
    for race in range(10):
        start = threading.Barrier(8)

        def write(number: int, race: int = race, start: threading.Barrier = start) -> bool:
            start.wait()
            return local.write_once(f"race-{race}.json", numbered(number))

        with ThreadPoolExecutor(8) as threads:
            won = list(threads.map(write, range(8)))
        assert sum(won) == 1
        assert local.read(f"race-{race}.json", StepCommit) == numbered(won.index(True))
    assert not list(Path(str(local)).glob("*.draft"))


#: Forked, so that a process costs no imports.
FORK = multiprocessing.get_context("fork")


def race(run: RunDirectory, number: int, start: Barrier) -> None:
    """Try to write 50 documents; exit with how many times this process was first."""
    start.wait()
    os._exit(sum(run.write_once(f"{document}.json", numbered(number)) for document in range(50)))


def test_of_three_processes_one_wins_each_time(local: RunDirectory) -> None:
    start = FORK.Barrier(3)
    writers = [FORK.Process(target=race, args=(local, number, start)) for number in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    won = [writer.exitcode for writer in writers]
    winners = [local.read(f"{document}.json", StepCommit).counts["rows"] for document in range(50)]
    assert [winners.count(number) for number in range(3)] == won


def die_while_writing(run: RunDirectory) -> None:
    def power_cut(fd: object) -> None:
        del fd
        os.kill(os.getpid(), signal.SIGKILL)

    os.fsync = power_cut
    run.write_once("COMMIT.json", numbered(0))


def test_a_writer_killed_half_way_leaves_no_document(local: RunDirectory) -> None:
    killed = FORK.Process(target=die_while_writing, args=(local,))
    killed.start()
    killed.join()
    assert killed.exitcode == -signal.SIGKILL
    assert not local.exists("COMMIT.json")
    assert [path.suffix for path in Path(str(local)).iterdir()] == [".draft"]
    assert local.write_once("COMMIT.json", numbered(1))


def test_the_same_document_may_be_written_again_another_may_not(run: RunDirectory) -> None:
    assert run.write_same("plan.json", numbered(1)) == numbered(1)
    assert run.write_same("plan.json", numbered(1)) == numbered(1)
    with pytest.raises(
        RunDirectoryError, match=r"plan.json: required the document this step would write, but came a different"
    ):
        run.write_same("plan.json", numbered(2))


def test_the_first_attempt_to_commit_counts_and_the_second_hears_of_it(run: RunDirectory) -> None:
    step = stage_step(3)
    assert run.commit_of(step) is None
    first, second = run.new_attempt(step), run.new_attempt(step)
    assert first.ident != second.ident
    file = CommittedFile(
        kind="states", path=f"{first.folder}/states/0.parquet", rows=5, size_bytes=7, checksum="0" * 64
    )
    committed = first.commit([file], {"rows": 5})
    assert run.committed(step) == run.commit_of(step) == committed
    assert committed.of_kind("states") == (file,)
    assert committed.of_kind("backlog") == ()
    with pytest.raises(
        LostRaceError, match=f"required to be the first attempt to commit, but came attempt {first.ident}'s"
    ):
        second.commit([], {"rows": 6})
    assert run.committed(step) == committed


def test_committing_the_same_again_is_no_race(run: RunDirectory) -> None:
    attempt = run.new_attempt("result")
    assert attempt.commit([], {"rows": 1}) == attempt.commit([], {"rows": 1})


def test_stages_are_counted_up_to_the_first_gap_and_reports_come_from_the_winner(run: RunDirectory) -> None:
    job = synthetic.job([100, 400], waves=(1, 4))
    run.write_once("job.json", job)
    plan = first_plan(job)
    for stage in (0, 1, 3):
        loser, winner = run.new_attempt(stage_step(stage)), run.new_attempt(stage_step(stage))
        report = synthetic.report(plan, {"a": stage + 1}).model_copy(update={"stage": stage})
        loser.write("report.json", report.model_copy(update={"stage_seconds": 99.0}))
        winner.write("report.json", report)
        winner.commit([], {})
    assert run.job() == job
    assert run.committed_stages() == 2
    assert [report.stage for report in run.reports()] == [0, 1]
    assert run.report(1).stage_seconds == 1.0


def test_enacting_a_decision_twice_is_enacting_it_once(run: RunDirectory) -> None:
    job = synthetic.job([100, 400], waves=(1, 4))
    plan = first_plan(job)
    decision = plan_next_stage(job, plan, synthetic.report(plan, {"a": 60, "b": 40}))
    assert run.enact(decision) == run.enact(decision) == run.decision(1) == decision
    assert run.plan(1) == decision.next_plan
    with pytest.raises(RunDirectoryError, match="a different one"):
        run.enact(decision.model_copy(update={"sentence": "something else"}))


def test_a_crash_between_plan_and_decision_is_healed(run: RunDirectory) -> None:
    job = synthetic.job([100, 400], waves=(1, 4))
    plan = first_plan(job)
    decision = plan_next_stage(job, plan, synthetic.report(plan, {"a": 60, "b": 40}))
    assert decision.next_plan is not None
    run.write_once("plans/0001.json", decision.next_plan)
    assert run.enact(decision) == run.decision(1)


def test_what_is_missing_or_torn_is_named(run: RunDirectory) -> None:
    with pytest.raises(
        RunDirectoryError, match=r"required job.json, but came no such file; run the step before this one"
    ):
        run.job()
    run.fs.makedirs(f"{run.root}/plans", exist_ok=True)
    run.fs.pipe_file(f"{run.root}/plans/0000.json", b'{"epoch":')
    with pytest.raises(DocumentError, match=r"plans/0000.json: required the document as it was written"):
        run.plan(0)


def test_an_attempt_lists_its_own_parquet_files_only(run: RunDirectory) -> None:
    mine, other = run.new_attempt("stages/0000"), run.new_attempt("stages/0000")
    for attempt in (mine, other):
        for name in ("states/b=1/x.parquet", "states/a.parquet", "states/_SUCCESS", "backlog/c.parquet"):
            path = f"{run.root}/{attempt.folder}/{name}"
            run.fs.makedirs(path.rpartition("/")[0], exist_ok=True)
            run.fs.pipe_file(path, b"")
    listed = [mine.relative(path) for path in mine.listed("states")]
    assert listed == [f"{mine.folder}/states/a.parquet", f"{mine.folder}/states/b=1/x.parquet"]
    assert all(run.path(name).endswith(name) for name in listed)


def test_paths_are_as_spark_reads_them(tmp_path: Path) -> None:
    assert RunDirectory(str(tmp_path)).path("x") == f"{tmp_path}/x"
    assert RunDirectory(f"file://{tmp_path}/").path("x") == f"{tmp_path}/x"
    assert RunDirectory("memory://run/").path("x") == "memory://run/x"
