"""Stopping a spark-submit with everything that it started."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence

import psutil

#: For Spark to tell its master and its executors that it goes.
GRACE_SECONDS = 10.0


def stop_tree(pid: int, grace_seconds: float = GRACE_SECONDS) -> int:
    """Ask a process and all below it to end, and kill what is still there after a while.

    The driver of a PySpark step is two processes: a JVM, and a Python below it that goes on without it.

    Returns:
        How many processes were there.
    """
    try:
        first = psutil.Process(pid)
        found = [first, *first.children(recursive=True)]
    except psutil.NoSuchProcess:
        return 0
    for one in found:
        with contextlib.suppress(psutil.NoSuchProcess):
            one.terminate()
    for one in _still_there(found, grace_seconds):
        with contextlib.suppress(psutil.NoSuchProcess):
            one.kill()
    _still_there(found, grace_seconds)
    return len(found)


def _still_there(processes: Sequence[psutil.Process], seconds: float) -> list[psutil.Process]:
    """Those that have not ended after so long.

    They are looked at and not waited for: the exit code of the first belongs to whoever started it, who would
    otherwise find none and take the step for a success.
    """
    deadline = time.monotonic() + seconds
    while (alive := [one for one in processes if _lives(one)]) and time.monotonic() < deadline:
        time.sleep(0.05)
    return alive


def _lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
