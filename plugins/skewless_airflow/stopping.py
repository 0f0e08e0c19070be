"""Stopping a spark-submit with everything that it started."""

from __future__ import annotations

import contextlib

import psutil  # type: ignore[import-untyped]

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
    _, alive = psutil.wait_procs(found, timeout=grace_seconds)
    for one in alive:
        with contextlib.suppress(psutil.NoSuchProcess):
            one.kill()
    psutil.wait_procs(alive, timeout=grace_seconds)
    return len(found)
