"""A step by spark-submit, which starts a Spark for it alone, on a cluster or on this machine."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator, Sequence

import psutil

from skewless_airflow.runners.step import Step

#: Time for Spark to tell its master and its executors.
GRACE_SECONDS = 10.0


def runner_of(step: Step) -> SubmittedStep:
    """The runner of any step."""
    return SubmittedStep(step)


class SubmittedStep:
    """A step that spark-submit runs."""

    def __init__(self, step: Step) -> None:
        self._step = step
        self._process: subprocess.Popen[str] | None = None

    def lines(self) -> Iterator[str]:
        """Submit the step; what spark-submit and the step say, line by line, until they end."""
        with subprocess.Popen(  # noqa: S603  # the command is the connection's
            self._step.command(),
            env={**os.environ, **self._step.variables},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
        ) as self._process:
            yield from (line.rstrip("\n") for line in self._process.stdout or ())

    def failure(self) -> str:
        """The exit code of spark-submit in words, once it has ended; empty if it is 0."""
        code = self._process.wait() if self._process else 0
        return f"spark-submit ended with exit code {code}" if code else ""

    def stop(self) -> int:
        """End spark-submit and the driver, which tell the cluster; returns how many processes there were."""
        if self._process is None or self._process.poll() is not None:
            return 0
        return stop_tree(self._process.pid)

    def close(self) -> None:
        """Let go of the step, which ends if it has not, and run what the task wants to be run after it."""
        self.stop()
        self._step.follow_up()


def stop_tree(pid: int, grace_seconds: float = GRACE_SECONDS) -> int:
    """Ask a process and its descendants to end, kill those that do not, and return how many processes there were.

    The driver of a PySpark step is two processes: a JVM, and a Python below it that survives the JVM.
    """
    try:
        first = psutil.Process(pid)
        processes = [first, *first.children(recursive=True)]
    except psutil.NoSuchProcess:
        return 0
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.terminate()
    for process in _still_there(processes, grace_seconds):
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    _still_there(processes, grace_seconds)
    return len(processes)


def _still_there(processes: Sequence[psutil.Process], seconds: float) -> list[psutil.Process]:
    """The processes that have not ended after some seconds.

    They are polled and not waited for: a wait would take the exit code from the parent of the first process, which
    would then take the step for a success.
    """
    deadline = time.monotonic() + seconds
    while (alive := [process for process in processes if _lives(process)]) and time.monotonic() < deadline:
        time.sleep(0.05)
    return alive


def _lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
