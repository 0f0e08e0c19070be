"""Who may enter a run directory: its owner; or a group, whatever the umask of those who write there."""

from __future__ import annotations

import grp
import os
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from skewless.documents.commit import StepCommit
from skewless.errors import RunDirectoryError
from skewless.run.directory import RunDirectory, stage_step
from skewless.run.folder import RUN_GROUP, RUNS_FOLDER, absolute_root, runs_below

NOBODY, GROUP = 65534, "users"
only_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can start processes of other users")


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that all users may enter."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def document(rows: int = 1) -> StepCommit:
    return StepCommit(step="s", attempt="a", files=(), counts={"rows": rows})


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def tries(code: str, folder: Path, *groups: int) -> int:
    """The exit code of a process of another user, with a usual umask."""
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


@only_root
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
