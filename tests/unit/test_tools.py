"""What the tests themselves rely on: their time, the processes that they start, and what the soak calls growth."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.conftest import UNTIL, last_change
from tests.load.footprint import Footprint, growth
from tests.processes import side_by_side

ROOT = Path(__file__).parents[2]
FILES = ("tests/unit/test_token_moves.py", "tests/unit/test_ledger.py", "tests/unit/test_ring.py")


def said(until: float, *options: str) -> str:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, *FILES]
    setting = os.environ | {UNTIL: str(until)}
    return subprocess.run(command, cwd=ROOT, env=setting, capture_output=True, text=True, check=False).stdout


def files_of(listed: str) -> list[str]:
    return list(dict.fromkeys(line.partition("::")[0] for line in listed.splitlines() if line.startswith("tests/")))


@pytest.mark.long
def test_with_a_limit_what_changed_last_comes_first_and_after_it_no_test_begins_and_each_is_named() -> None:
    changed = {file: last_change(ROOT, ROOT / file) for file in FILES}
    expected = sorted(sorted(FILES), key=lambda file: -changed[file])
    assert files_of(said(time.time() + 600, "--collect-only")) == expected
    told = said(time.time() - 1, "-n", "1")
    assert " passed" not in told
    assert set(files_of(told.partition("tests were left out, as the time was up")[2])) == set(FILES)


def test_a_file_that_was_never_committed_comes_before_all_others(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    (tmp_path / "test_new.py").touch()
    assert last_change(tmp_path, tmp_path / "test_new.py") > time.time()


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


FLAT = Footprint(0, {"scheduler": 300.0}, {"scheduler": 40}, 9, 12)
FILLED = [0, 40, 60, 60, 60, 60, 60, 60, 60]


@pytest.mark.parametrize(
    ("grown", "words"),
    [
        ([{} for _ in range(9)], []),
        ([{"temporary_files": files} for files in FILLED], []),
        ([{"mib": {"scheduler": 100.0 + 5 * files}} for files in FILLED], []),
        (
            [{"mib": {"scheduler": 300.0 + 20 * number}} for number in range(9)],
            ["MiB of the scheduler grew from 380.0 to 440.0"],
        ),
        (
            [{"descriptors": {"scheduler": 40 + 5 * number}} for number in range(9)],
            ["descriptors of the scheduler grew from 60.0 to 75.0"],
        ),
        ([{"temporary_files": 12 + 10 * number} for number in range(9)], ["temporary files grew from 52.0 to 82.0"]),
    ],
    ids=["nothing", "files in the beginning", "memory in the beginning", "memory", "descriptors", "files"],
)
def test_a_little_with_each_run_is_growth_and_what_fills_in_the_beginning_is_not(
    grown: list[dict[str, Any]], words: list[str]
) -> None:
    assert growth([replace(FLAT, runs=10 * number, **one) for number, one in enumerate(grown)]) == words
