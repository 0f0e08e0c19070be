"""No process of a test outlives it."""

from __future__ import annotations

import contextlib
import subprocess
import sys

import psutil
import pytest

from tests.processes import side_by_side
from tests.tiers import mostly_long

_PARENT = (
    "import subprocess, sys, time\n"
    "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
    "print(child.pid, flush=True)\n"
    "time.sleep(600)\n"
)


@pytest.mark.parametrize("fails", mostly_long([False, True], True))
def test_a_test_leaves_neither_a_process_nor_what_that_has_started(fails: bool) -> None:
    begun: list[int] = []
    with (
        contextlib.suppress(ValueError),
        side_by_side([[sys.executable, "-c", _PARENT]], stdout=subprocess.PIPE) as (parent,),
    ):
        assert parent.stdout
        begun += [parent.pid, int(parent.stdout.readline())]
        if fails:
            raise ValueError
    gone, _ = psutil.wait_procs([psutil.Process(pid) for pid in begun if psutil.pid_exists(pid)], timeout=10)
    left = [pid for pid in begun if psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE]
    assert len(begun) == 2
    assert left == [], gone
