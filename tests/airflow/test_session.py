"""What is started to outlive its starter: it takes nothing along that was its starter's, and it is found again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from skewless_airflow.runners.process_session import Session, ask, begin, end
from tests.airflow.players import await_that

#: As a Makefile or a CI job does: take a lock by a file that is open in the shell, then start something under it.
_UNDER_A_LOCK = 'exec 9>"$1"; flock 9; shift; "$@"'
_BEGIN = """
import os, sys
from pathlib import Path
from skewless_airflow.runners.process_session import begin

begun = begin(["sleep", "600"], os.environ, Path.cwd(), Path("said"))
print(begun.pid, begun.born)
"""
_HEARTBEAT = """
import sys, time
from pathlib import Path
from skewless_leases.liveness.heartbeat import Heartbeat

beat = Heartbeat(f"file://{Path.cwd()}/leases", "worker", 1, 60.0)
beat.keep()
print(*(path.readlink() for path in Path(f"/proc/{beat.pid}/fd").iterdir()))
beat.stop()
"""


def _under_a_lock(folder: Path, script: str) -> str:
    command = ["bash", "-euc", _UNDER_A_LOCK, "bash", "lock", sys.executable, "-c", script]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout


def test_a_lock_of_the_starter_is_free_when_it_has_ended_though_what_it_started_lives(tmp_path: Path) -> None:
    begun = Session(*map(int, _under_a_lock(tmp_path, _BEGIN).split()))
    try:
        assert begun.leads()
        taken = subprocess.run(["flock", "--nonblock", "lock", "true"], cwd=tmp_path, check=False)
        assert taken.returncode == 0, "the lock is still held"
    finally:
        end([begun], 5)


def test_a_heartbeat_has_no_file_of_its_worker_s(tmp_path: Path) -> None:
    files = _under_a_lock(tmp_path, _HEARTBEAT)
    assert "pipe:" in files
    assert str(tmp_path / "lock") not in files


def test_a_session_is_its_first_process_and_no_other_that_has_its_number(tmp_path: Path) -> None:
    script = (
        "import subprocess, sys, time; subprocess.Popen(['sleep', '60']); print('begun', flush=True); time.sleep(60)"
    )
    begun = begin([sys.executable, "-c", script], dict(os.environ), tmp_path, tmp_path / "said")
    try:
        await_that(lambda: len(begun.processes()) == 2, "a child of the session")
        assert begun.leads()
        reused = Session(begun.pid, begun.born - 1)  # its number was given to another process since
        assert (reused.leads(), reused.processes()) == (False, [])
        os.kill(begun.pid, signal.SIGKILL)
        os.waitpid(begun.pid, 0)
        assert (begun.leads(), len(begun.processes())) == (False, 1)
    finally:
        end([begun], 5)
    assert begun.processes() == []


def test_a_session_ends_with_all_that_it_started_though_it_does_not_listen(tmp_path: Path) -> None:
    # A child of a process group of its own, as components of Airflow make.
    script = "set -m; (trap '' TERM; sleep 60) & echo up; wait"
    session = begin(["bash", "-c", script], dict(os.environ), tmp_path, tmp_path / "output")
    await_that(lambda: "up" in (tmp_path / "output").read_text(), "its child")
    assert len(session.processes()) >= 2
    ask({session: signal.SIGTERM}, seconds=0.3)
    assert not session.leads()
    assert session.processes(), "the child did not listen"
    end([session], seconds=0.3)
    assert session.processes() == []
