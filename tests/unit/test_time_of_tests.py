"""Tests whose time is limited: what changed last runs first, and what is left out is listed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import UNTIL, last_change

ROOT = Path(__file__).parents[2]
FILES = ("tests/unit/test_makespan.py", "tests/unit/test_waves.py", "tests/unit/test_ring.py")


def said(until: float, *options: str) -> str:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, *FILES]
    setting = os.environ | {UNTIL: str(until)}
    return subprocess.run(command, cwd=ROOT, env=setting, capture_output=True, text=True, check=False).stdout


def files_of(listed: str) -> list[str]:
    return list(dict.fromkeys(line.partition("::")[0] for line in listed.splitlines() if line.startswith("tests/")))


@pytest.mark.long
def test_with_a_limit_what_changed_last_comes_first() -> None:
    changed = {file: last_change(ROOT, ROOT / file) for file in FILES}
    expected = sorted(sorted(FILES), key=lambda file: -changed[file])
    assert files_of(said(time.time() + 600, "--collect-only")) == expected


def test_a_file_that_was_never_committed_comes_before_all_others(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    (tmp_path / "test_new.py").touch()
    assert last_change(tmp_path, tmp_path / "test_new.py") > time.time()


@pytest.mark.long
def test_after_the_time_is_up_no_test_begins_and_each_is_named() -> None:
    told = said(time.time() - 1, "-n", "1")
    assert " passed" not in told
    assert set(files_of(told.partition("tests were left out, as the time was up")[2])) == set(FILES)
