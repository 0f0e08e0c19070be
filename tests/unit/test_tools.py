"""What the tests themselves rely on: their time, and the processes that they start."""

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.conftest import TURNS, UNTIL, changed_files, in_turn
from tests.processes import side_by_side

ROOT = Path(__file__).parents[2]
FILES = ("tests/unit/test_policies.py", "tests/unit/test_ledger.py", "tests/unit/test_ring.py")


def said(until: float, *options: str) -> str:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, *FILES]
    setting = os.environ | {UNTIL: str(until)}
    return subprocess.run(command, cwd=ROOT, env=setting, capture_output=True, text=True, check=False).stdout


def files_of(listed: str) -> list[str]:
    return list(dict.fromkeys(line.partition("::")[0] for line in listed.splitlines() if line.startswith("tests/")))


@pytest.mark.long
def test_after_its_limit_no_test_begins_and_each_is_named() -> None:
    output = said(time.time() - 1, "-n", "1")
    assert " passed" not in output
    assert set(files_of(output.partition("tests were left out, as the time was up")[2])) == set(FILES)


def test_what_changed_runs_first_and_each_other_file_begins_a_day_in_its_turn() -> None:
    files = [f"tests/test_{letter}.py" for letter in "abcdefgh"]
    orders = [in_turn(files, {"tests/test_h.py"}, day) for day in range(TURNS)]
    assert all(order[0] == "tests/test_h.py" and sorted(order) == files for order in orders)
    assert {file for order in orders for file in order[1:4]} == set(files[:-1])


def test_the_files_of_the_last_change_are_those_of_its_commits(tmp_path: Path) -> None:
    assert changed_files(tmp_path) == set()
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    for name, moment in (
        ("old", "2026-01-01T00:00:00Z"),
        ("new", "2026-01-02T10:00:00Z"),
        ("newer", "2026-01-02T12:00:00Z"),
    ):
        (tmp_path / name).touch()
        git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@example.org"]
        subprocess.run([*git, "add", name], check=True)
        dates = os.environ | {"GIT_AUTHOR_DATE": moment, "GIT_COMMITTER_DATE": moment}
        subprocess.run([*git, "commit", "--quiet", "-m", name], check=True, env=dates)
    assert changed_files(tmp_path) == {"new", "newer"}


_PARENT = (
    "import subprocess, sys, time\n"
    "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
    "print(child.pid, flush=True)\n"
    "time.sleep(600)\n"
)


def test_a_test_that_fails_leaves_neither_a_process_nor_what_that_has_started() -> None:
    begun: list[int] = []
    with (
        contextlib.suppress(ValueError),
        side_by_side([[sys.executable, "-c", _PARENT]], stdout=subprocess.PIPE) as (parent,),
    ):
        assert parent.stdout
        begun += [parent.pid, int(parent.stdout.readline())]
        raise ValueError
    psutil.wait_procs([psutil.Process(pid) for pid in begun if psutil.pid_exists(pid)], timeout=10)
    left = [pid for pid in begun if psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE]
    assert (len(begun), left) == (2, [])
