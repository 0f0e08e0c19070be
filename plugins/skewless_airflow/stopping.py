"""Stopping a process with everything that it started."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence

import psutil

#: Time for Spark to tell its master and its executors.
GRACE_SECONDS = 10.0


def stop_tree(pid: int, grace_seconds: float = GRACE_SECONDS) -> int:
    """Ask a process and its descendants to end, and kill those that are still alive after a while.

    The driver of a PySpark step is two processes: a JVM, and a Python below it that survives the JVM.

    Returns:
        How many processes there were.
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
    """The processes that have not ended after some seconds.

    They are polled and not waited for: a wait would take the exit code from the parent of the first process, which
    would then take the step for a success.
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
