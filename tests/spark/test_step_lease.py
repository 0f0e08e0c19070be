"""A step under its lease: who may commit, whoever was faster. No Spark is needed to see it."""

from pathlib import Path

import pytest

from skewless.errors import DocumentError, LostRaceError
from skewless.run.directory import MANIFEST, RunDirectory
from skewless_leases import FencedOutError, fence, open_store
from skewless_leases.lease_tables import look_at
from skewless_spark.session.step_lease import OWNER, leased_step
from tests.leases.conftest import bucket
from tests.unit import synthetic

STEP = "stages/0000"
__all__ = ["bucket"]  # fixtures


@pytest.fixture(params=["folder", "bucket"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> RunDirectory:
    folder = str(tmp_path) if request.param == "folder" else f"{request.getfixturevalue('bucket')}/{tmp_path.name}"
    made = RunDirectory(f"{folder}/run")
    made.write_once("job.json", synthetic.job([10]))
    return made


@pytest.fixture
def address(run: RunDirectory) -> str:
    return f"{run}/{STEP}/{OWNER}"


def succeed(address: str) -> None:
    """Another attempt takes the step, as it does from one that was silent for too long."""
    store = open_store(address)
    assert fence.take(store, STEP, "successor", look_at(store, 0.0).allocations[STEP])


class InterruptedAttemptError(Exception):
    """The process ends here."""


class EndsAfterItWasLetThrough:
    def __init__(self, real: object) -> None:
        self._real = real

    def admit(self, attempt: str) -> None:
        self._real.admit(attempt)  # type: ignore[attr-defined]
        raise InterruptedAttemptError


def test_a_step_is_committed_under_its_lease(run: RunDirectory, address: str) -> None:
    with leased_step(run, STEP) as lease:
        attempt = run.new_attempt(STEP, lease)
        attempt.commit([], {"rows": 1})
        assert look_at(open_store(address), 0.0).committed() == {STEP: attempt.ident}
    look = look_at(open_store(address), 0.0)
    assert look.of(STEP).holder is None
    assert look.of(STEP).fence == 1
    assert not look.presences


def test_a_step_whose_commit_was_removed_is_done_anew(run: RunDirectory) -> None:
    for rows in (1, 2):
        with leased_step(run, STEP) as lease:
            assert run.commit_of(STEP) is None
            run.new_attempt(STEP, lease).commit([], {"rows": rows})
        assert run.committed(STEP).counts == {"rows": rows}
        run.fs.rm_file(f"{run.root}/{STEP}/COMMIT.json")


def test_a_late_attempt_is_stopped_by_the_fence_although_nobody_has_committed(run: RunDirectory, address: str) -> None:
    with leased_step(run, STEP) as lease:
        attempt = run.new_attempt(STEP, lease)
        succeed(address)
        with pytest.raises(FencedOutError, match=r"expected fencing number 1 .* but got 2, held by successor"):
            attempt.commit([], {"rows": 1})
        assert run.commit_of(STEP) is None
        run.new_attempt(STEP).commit([], {"rows": 2})
        with pytest.raises(LostRaceError, match="fencing number"):
            attempt.commit([], {"rows": 1})
    assert run.committed(STEP).counts == {"rows": 2}


def test_what_was_let_through_is_committed_by_whoever_comes_next(run: RunDirectory) -> None:
    with leased_step(run, STEP) as lease:
        assert lease is not None
        attempt = run.new_attempt(STEP, EndsAfterItWasLetThrough(lease))
        with pytest.raises(InterruptedAttemptError):
            attempt.commit([], {"rows": 1})
    assert run.commit_of(STEP) is None
    with leased_step(run, STEP):
        assert run.committed(STEP).attempt == attempt.ident


@pytest.mark.parametrize("damage", ["gone", "of another step"])
def test_a_manifest_that_is_gone_is_done_anew_and_another_one_is_told(run: RunDirectory, damage: str) -> None:
    with leased_step(run, STEP) as lease:
        assert lease is not None
        attempt = run.new_attempt(STEP, EndsAfterItWasLetThrough(lease))
        with pytest.raises(InterruptedAttemptError):
            attempt.commit([], {"rows": 1})
    run.fs.rm_file(f"{run.root}/{attempt.folder}/{MANIFEST}")
    if damage == "gone":
        with leased_step(run, STEP) as lease:
            run.new_attempt(STEP, lease).commit([], {"rows": 2})
        assert run.committed(STEP).counts == {"rows": 2}
        return
    run.write_once(f"{attempt.folder}/{MANIFEST}", run.new_attempt("result").manifest([], {}))
    with pytest.raises(DocumentError, match="but got another one of 'result'"), leased_step(run, STEP):
        pytest.fail("it was held")


def test_a_run_directory_without_leases_commits_the_first(tmp_path: Path) -> None:
    run = RunDirectory(f"memory://{tmp_path}/run")
    run.write_once("job.json", synthetic.job([10]))
    with leased_step(run, STEP) as lease:
        assert lease is None
        run.new_attempt(STEP, lease).commit([], {"rows": 1})
    with pytest.raises(LostRaceError):
        run.new_attempt(STEP).commit([], {"rows": 2})
