import multiprocessing
import os
import signal
from collections.abc import Callable
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest
from fsspec.implementations.local import LocalFileSystem

from skewless.documents.commit import CommittedFile, StepCommit
from skewless.errors import DocumentError, LostRaceError, RunDirectoryError, SkewlessError
from skewless.planner.first_plan import first_plan
from skewless.planner.planner import plan_next_stage
from skewless.run.directory import MANIFEST, STAGE_REPORT, RunDirectory, stage_step
from skewless.run.storage import file_checksum
from tests.unit import synthetic


@pytest.fixture(params=["local", "memory"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> RunDirectory:
    return RunDirectory(str(tmp_path / "run") if request.param == "local" else f"memory://{tmp_path}/run")


@pytest.fixture
def local(tmp_path: Path) -> RunDirectory:
    return RunDirectory(str(tmp_path / "run"))


def numbered(number: int) -> StepCommit:
    return StepCommit(step="s", attempt=str(number), files=(), counts={"rows": number})


#: A job, its first plan, and the decision after its first stage.
JOB = synthetic.job([100, 400], waves=(1, 4))
PLAN = first_plan(JOB)
DECISION = plan_next_stage(JOB, PLAN, synthetic.report(PLAN, {"a": 60, "b": 40}))
#: The report of a stage.
REPORT = synthetic.report(PLAN, {"a": 1})


def put(run: RunDirectory, path: str, content: bytes) -> None:
    run.fs.makedirs(path.rpartition("/")[0], exist_ok=True)
    run.fs.pipe_file(path, content)


def test_the_first_writer_wins(run: RunDirectory) -> None:
    assert run.write_once("a/b.json", numbered(1))
    assert not run.write_once("a/b.json", numbered(2))
    assert run.read("a/b.json", StepCommit) == numbered(1)


#: Forked, so that a process costs no imports.
FORK = multiprocessing.get_context("fork")


def race(run: RunDirectory, number: int, start: Barrier) -> None:
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
    assert not list(Path(str(local)).glob("*.draft"))


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
        RunDirectoryError, match=r"plan.json: expected the document that this step would write, but got a different"
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
    assert first.commit([file], {"rows": 5}) == committed, "its own commit again is no race"
    assert run.committed(step) == run.commit_of(step) == committed
    assert committed.of_kind("states") == (file,)
    assert committed.of_kind("backlog") == ()
    with pytest.raises(LostRaceError, match=f"attempt {first.ident} committed first"):
        second.commit([], {"rows": 6})
    assert run.committed(step) == committed


def test_stages_are_counted_up_to_the_first_gap_and_reports_come_from_the_winner(run: RunDirectory) -> None:
    run.write_once("job.json", JOB)
    for stage in (0, 1, 3):
        loser, winner = run.new_attempt(stage_step(stage)), run.new_attempt(stage_step(stage))
        report = synthetic.report(PLAN, {"a": stage + 1}).model_copy(update={"stage": stage})
        loser.write("report.json", report.model_copy(update={"stage_seconds": 99.0}))
        winner.write("report.json", report)
        winner.commit([], {})
    run.new_attempt(stage_step(2)).write("report.json", REPORT)
    assert run.job() == JOB
    assert run.committed_stages() == 2, "an attempt of stage 2 was made, and none committed"
    assert [report.stage for report in run.reports()] == [0, 1]
    assert run.report(1).stage_seconds == 1.0


def test_enacting_a_decision_twice_is_enacting_it_once(run: RunDirectory) -> None:
    assert run.enact(DECISION) == run.enact(DECISION) == run.decision(1) == DECISION
    assert run.plan(1) == DECISION.next_plan
    with pytest.raises(RunDirectoryError, match="a different one"):
        run.enact(DECISION.model_copy(update={"sentence": "something else"}))


def test_a_crash_between_plan_and_decision_is_healed(run: RunDirectory) -> None:
    assert DECISION.next_plan is not None
    run.write_once("plans/0001.json", DECISION.next_plan)
    assert run.enact(DECISION) == run.decision(1)


def test_a_job_is_parsed_once_and_its_text_is_looked_at_each_time(run: RunDirectory) -> None:
    assert run.begin(JOB) is JOB
    assert run.job() is JOB
    another = RunDirectory(str(run))
    assert another.job() == JOB
    assert another.job() is another.job()
    run.fs.pipe_file(f"{run.root}/job.json", run.text_of("job.json").replace(b"100", b"101", 1))
    for one in (run, another):
        with pytest.raises(DocumentError, match="cut or changed"):
            one.job()


def test_of_two_that_begin_a_run_the_first_one_counts(run: RunDirectory) -> None:
    run.begin(JOB)
    other = JOB.model_copy(update={"turn": JOB.turn + 1})
    assert RunDirectory(str(run)).begin(other) == JOB


def test_what_is_missing_or_torn_is_named(run: RunDirectory) -> None:
    with pytest.raises(RunDirectoryError, match=r"there is no job.json; run the step before this one"):
        run.job()
    put(run, f"{run.root}/plans/0000.json", b'{"epoch":')
    with pytest.raises(DocumentError, match=r"plans/0000.json: the document was cut or changed since it was written"):
        run.plan(0)


def test_an_attempt_lists_its_own_parquet_files_only(run: RunDirectory) -> None:
    mine, other = run.new_attempt("stages/0000"), run.new_attempt("stages/0000")
    for attempt in (mine, other):
        for name in ("states/b=1/x.parquet", "states/a.parquet", "states/_SUCCESS", "backlog/c.parquet"):
            put(run, f"{run.root}/{attempt.folder}/{name}", b"")
    listed = [mine.relative(path) for path in mine.listed("states")]
    assert listed == [f"{mine.folder}/states/a.parquet", f"{mine.folder}/states/b=1/x.parquet"]
    assert all(run.path(name).endswith(name) for name in listed)


def parquet(pages: bytes, footer: bytes = b"what the pages hold") -> bytes:
    """As a Parquet file is laid out: pages, a footer, the footer's length, a mark."""
    return b"PAR1" + pages + footer + len(footer).to_bytes(4, "little") + b"PAR1"


@pytest.mark.parametrize(
    ("name", "written", "found"),
    [
        ("x.csv", b"a,1\n", b"a,2\n"),
        ("x.csv", b"a,1\n", b"a,1"),
        ("x.parquet", parquet(b"pages"), parquet(b"pages", b"what the Pages hold")),
        ("x.parquet", parquet(b"pages"), parquet(b"pag")),
        ("x.parquet", parquet(b"pages"), parquet(b"pages", b"")[:-4] + b"....".rjust(len(b"what the pages hold") + 4)),
        ("x.parquet", parquet(b"pages"), None),
    ],
    ids=["other content", "cut", "other footer", "fewer pages", "no footer", "gone"],
)
def test_a_committed_file_that_changed_is_not_read(
    run: RunDirectory, name: str, written: bytes, found: bytes | None
) -> None:
    attempt = run.new_attempt("result")
    path = f"{run.root}/{attempt.folder}/{name}"
    put(run, path, written)
    file = attempt.described("result", path, 1)
    run.verify(file)
    run.fs.rm_file(path) if found is None else run.fs.pipe_file(path, found)
    with pytest.raises(RunDirectoryError, match=f"expected the file of {len(written)} bytes that was committed"):
        run.verify(file)


@pytest.mark.parametrize(
    "content", [parquet(b"pages")[:-1] + b"E", b"PAR1", b"", parquet(b"pages")[-12:]],
    ids=["another mark", "a mark alone", "empty", "a footer longer than the file"],
)  # fmt: skip
def test_what_has_no_footer_is_no_parquet_file(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.parquet").write_bytes(content)
    with pytest.raises(OSError, match="it has no Parquet footer at its end"):
        file_checksum(LocalFileSystem(), str(tmp_path / "x.parquet"))


def test_a_committed_document_that_changed_is_not_read(run: RunDirectory) -> None:
    attempt = run.new_attempt(stage_step(0))
    attempt.write(STAGE_REPORT, REPORT)
    attempt.commit([], {})
    assert run.report(0) == REPORT
    other = REPORT.model_copy(update={"stage_seconds": REPORT.stage_seconds + 1}).sealed().encode()
    assert len(other) == len(REPORT.sealed().encode())
    run.fs.pipe_file(f"{run.root}/{attempt.folder}/{STAGE_REPORT}", other)
    with pytest.raises(RunDirectoryError, match="that was committed, but got other content"):
        run.report(0)


class Guard:
    """A fence that lets nobody through, or everybody, and notes what was there when it was asked."""

    def __init__(self, run: RunDirectory, *, opens: bool) -> None:
        self._run, self._opens = run, opens
        self.manifests: list[StepCommit] = []

    def admit(self, attempt: str) -> None:
        self.manifests.append(self._run.read(f"s/attempts/{attempt}/{MANIFEST}", StepCommit))
        if not self._opens:
            raise SkewlessError("fence", "the last fencing number", "an older one")


def test_an_attempt_that_its_fence_does_not_let_through_commits_nothing(run: RunDirectory) -> None:
    fence = Guard(run, opens=False)
    with pytest.raises(SkewlessError, match="expected the last fencing number"):
        run.new_attempt("s", fence).commit([], {"rows": 1})
    assert run.commit_of("s") is None
    assert len(fence.manifests) == 1


def test_what_a_fence_let_through_can_be_committed_by_whoever_comes_next(run: RunDirectory) -> None:
    """The manifest is whole before the fence is asked, so that nothing is missing if the attempt ends there."""
    fence = Guard(run, opens=True)
    attempt = run.new_attempt("s", fence)
    commit = attempt.commit([], {"rows": 1})
    assert fence.manifests == [commit]
    run.fs.rm_file(f"{run.root}/s/COMMIT.json")
    run.finish_admitted("s", attempt.ident)
    assert run.committed("s") == commit


def test_the_manifest_of_another_attempt_commits_nothing(run: RunDirectory) -> None:
    other = run.new_attempt("s", Guard(run, opens=True))
    other.commit([], {"rows": 1})
    run.fs.rm_file(f"{run.root}/s/COMMIT.json")
    run.fs.makedirs(f"{run.root}/s/attempts/mine", exist_ok=True)
    run.fs.mv(f"{run.root}/{other.folder}/{MANIFEST}", f"{run.root}/s/attempts/mine/{MANIFEST}")
    with pytest.raises(DocumentError, match="expected attempt mine of s, but got another one"):
        run.finish_admitted("s", "mine")
    assert run.commit_of("s") is None


@pytest.mark.parametrize(
    ("name", "kept", "read"),
    [
        ("plans/{}.json", "0001", lambda run: run.plan(0)),
        ("decisions/{}.json", "0002", lambda run: run.decision(1)),
        ("stages/{}/COMMIT.json", "0001", lambda run: run.committed("stages/0000")),
    ],
    ids=["plan", "decision", "commit"],
)
def test_a_whole_document_in_the_place_of_another_is_refused(
    run: RunDirectory, name: str, kept: str, read: Callable[[RunDirectory], object]
) -> None:
    assert DECISION.next_plan is not None
    run.write_once("plans/0001.json", DECISION.next_plan)
    run.write_once("decisions/0002.json", DECISION.model_copy(update={"stage": 2, "next_plan": None}))
    run.write_once("stages/0001/COMMIT.json", StepCommit(step="stages/0001", attempt="a", files=()))
    there, wanted = f"{run.root}/{name.format(kept)}", f"{run.root}/{name.format(f'{int(kept) - 1:04d}')}"
    put(run, wanted, run.fs.cat_file(there))
    with pytest.raises(DocumentError, match="restore the file from a copy"):
        read(run)


def test_the_report_of_another_stage_is_refused(run: RunDirectory) -> None:
    attempt = run.new_attempt(stage_step(0))
    attempt.write(STAGE_REPORT, REPORT.model_copy(update={"stage": 1}))
    attempt.commit([], {})
    with pytest.raises(DocumentError, match="expected the report of stage 0, but got that of 1"):
        run.report(0)


def test_a_crash_between_plan_and_decision_leaves_the_plan_and_no_decision(run: RunDirectory) -> None:
    """A decision is what others go on from, so its plan is there before it."""
    put(run, f"{run.root}/decisions", b"a file where the folder should be")
    with pytest.raises((RunDirectoryError, OSError)):
        run.enact(DECISION)
    assert not run.exists("decisions/0001.json")
    assert run.plan(1) == DECISION.next_plan


def test_what_tasks_have_reported_is_listed_and_nothing_else(run: RunDirectory) -> None:
    """A task that was thought dead goes on writing into the attempt's folder."""
    attempt = run.new_attempt("result")
    paths = [f"{run.root}/{attempt.folder}/data/{name}.parquet" for name in ("one", "late")]
    for path in paths:
        put(run, path, b"")
    assert attempt.listed("data") == sorted(paths)
    attempt.report([attempt.path("data/one.parquet")])
    assert attempt.listed("data") == paths[:1]
    assert attempt.listed("other") == []
