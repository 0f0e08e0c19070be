"""A step by spark-submit, with its driver on this machine or on a cluster.

A driver on the cluster, on YARN or on Kubernetes, is submitted and followed by Spark's provider, and does not end with
its task. After a worker was lost, the next try finds the application that the try before has submitted, since the
provider keeps its id in Airflow's task state, and waits for that one in place of submitting a second one. Such a
driver's own log stays on the cluster.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator, Sequence

import psutil
from airflow.sdk.exceptions import AirflowException

from skewless.errors import SpecError
from skewless_airflow.runners.process_session import born
from skewless_airflow.runners.step import YARN_SERVER, Step

#: Time for Spark to tell its master and its executors.
GRACE_SECONDS = 10.0


def runner_of(step: Step) -> SubmittedStep | ClusterStep:
    """The runner of any step.

    Raises:
        SpecError: its connection has the deploy mode ``cluster``, for a master that has no drivers there, or without
            what they are followed by.
    """
    if not step.target.on_cluster:
        return SubmittedStep(step)
    target = step.target
    if target.on_kubernetes:
        needed, value, hint = "namespace", target.namespace, "name the namespace of the drivers' pods"
    elif target.on_yarn:
        needed, value = YARN_SERVER, target.yarn_server
        hint = "write the address of the resource manager, like http://rm:8088"
    else:
        required = "the deploy mode client, because Spark runs drivers in Python only on YARN and Kubernetes"
        raise SpecError(target.where, required, f"'cluster' for {target.master}", "leave deploy-mode out")
    if not value:
        required = f"{needed}, by which drivers on the cluster are followed"
        raise SpecError(f"{target.where}, extra", required, "none", hint)
    return ClusterStep(step)


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
    while (alive := [one for one in processes if one.is_running() and born(one.pid)]) and time.monotonic() < deadline:
        time.sleep(0.05)
    return alive


class ClusterStep:
    """A step that the provider submits, or finds again, and follows."""

    def __init__(self, step: Step) -> None:
        self._step = step
        self._failure: str | None = None

    def lines(self) -> Iterator[str]:
        """Submit the step, unless an earlier try has, and wait until it has ended; its lines stay on the cluster."""
        yield from ()
        try:
            self._step.follow()
        except (RuntimeError, ValueError, AirflowException) as err:
            self._failure = str(err)
        else:
            self._failure = ""

    def failure(self) -> str:
        """What the provider says of an application that failed; empty if it ended well."""
        return "the step has not ended" if self._failure is None else self._failure

    def stop(self) -> int:
        """Have the cluster end the application, unless it has ended; returns how many there were."""
        if self._failure is not None:
            return 0
        self._step.cancel()
        return 1

    def close(self) -> None:
        """Let go of the step. Its application goes on: the next try finds it."""
