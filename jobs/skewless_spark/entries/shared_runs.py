"""The clusters of a run that ``skewless run --cluster`` starts: one process each. The run survives their loss."""

from __future__ import annotations

import os
import re
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from skewless.documents.step_documents import Failure
from skewless.errors import SkewlessError, SpecError
from skewless.run.directory import RunDirectory
from skewless_spark.entries.pipeline import Watcher

#: Seconds that a cluster's process has to end, before it is killed.
_END_SECONDS = 10.0
_POLL_SECONDS = 0.2
_NAME = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,49}"


class Cluster(NamedTuple):
    """A Spark cluster: a name for people, and the address of its master."""

    name: str
    master: str


class NoClusterError(SkewlessError):
    """All clusters that shared a run have ended before the run."""


def cluster_name(name: str) -> str:
    """The name of a cluster, checked: leases and files have it in their names.

    Raises:
        SpecError: it is too long, or has other characters.
    """
    if not re.fullmatch(_NAME, name):
        raise SpecError(
            "option --cluster", "a name of at most 50 letters, digits, dots, hyphens and underscores", repr(name[:80])
        )
    return name


def parse_clusters(options: Sequence[str]) -> list[Cluster]:
    """Clusters from options of the form ``NAME=MASTER``.

    Raises:
        SpecError: an option has another form, or a name occurs twice.
    """
    clusters: list[Cluster] = []
    for text in options:
        name, _, master = text.partition("=")
        if not master:
            raise SpecError("option --cluster", "NAME=MASTER, like east=spark://east:7077", repr(text[:120]))
        if any(cluster.name == name for cluster in clusters):
            raise SpecError("option --cluster", "a name of its own for each cluster", f"{name!r} twice")
        clusters.append(Cluster(cluster_name(name), master))
    return clusters


def stay_with(parent: int) -> None:
    """End this process as soon as its parent process is not the one with this id any more."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def run_shared_stages(run: RunDirectory, clusters: Sequence[Cluster], watcher: Watcher) -> Cluster:
    """Let clusters run the stages of a prepared job together, until no further stage is needed.

    Args:
        watcher: is told of each stage once the decision after it has been made.

    Returns:
        The first of the clusters that are still running at the end.

    Raises:
        NoClusterError: all of them have ended; it says why the last one did.
    """
    progress = _Progress(run, watcher)
    if progress.all_done():
        return clusters[0]
    with _started(run, clusters) as processes:
        while not progress.all_done():
            if all(process.has_left for process in processes) and not progress.all_done():
                raise processes[-1].refusal()
            time.sleep(_POLL_SECONDS)
        return next((process.cluster for process in processes if not process.has_left), clusters[0])


class _Progress:
    """Tells a watcher of stages, each once."""

    def __init__(self, run: RunDirectory, watcher: Watcher) -> None:
        self._run, self._watcher, self._stages = run, watcher, 0

    def all_done(self) -> bool:
        """Tell the watcher of new stages; returns whether no further stage is needed."""
        while self._run.exists(f"decisions/{self._stages + 1:04d}.json"):
            decision = self._run.decision(self._stages + 1)
            self._watcher(self._run.report(self._stages), decision)
            if decision.next_plan is None:
                return True
            self._stages += 1
        return False


class _Process:
    def __init__(self, run: RunDirectory, cluster: Cluster) -> None:
        self.cluster, self._run = cluster, run
        self._failure = f"share-{cluster.name}-{secrets.token_hex(4)}"
        command = [
            sys.executable, "-P", "-m", "skewless_spark.entries.run_steps", "share",
            "--run-dir", run.path("").rstrip("/"), "--cluster", cluster.name, "--master", cluster.master,
            "--failure-name", self._failure, "--stay-with", str(os.getpid()),
        ]  # fmt: skip
        self._process = subprocess.Popen(  # noqa: S603  # this interpreter, with arguments of our own
            command,
            stdin=subprocess.DEVNULL,
            # Standard output belongs to the run itself; failures go to standard error.
            stdout=subprocess.DEVNULL,
        )

    @property
    def has_left(self) -> bool:
        """Whether the process has ended with an error; at the end of the stages it exits with 0."""
        return self._process.poll() not in {None, 0}

    def refusal(self) -> NoClusterError:
        """Why the process ended, from its failure document if it wrote one."""
        name = f"failures/{self._failure}.json"
        failure = self._run.read(name, Failure) if self._run.exists(name) else None
        reason = failure.sentence if failure else f"exit code {self._process.returncode}"
        err = NoClusterError(
            f"run {self._run}",
            "a cluster that runs its stages to their end",
            f"none any more; {self.cluster.name}: {reason}",
        )
        err.exit_code = failure.exit_code if failure else 1  # type: ignore[misc]
        return err

    def end(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@contextmanager
def _started(run: RunDirectory, clusters: Sequence[Cluster]) -> Iterator[list[_Process]]:
    processes: list[_Process] = []
    try:
        # Appended one by one, so that the started processes end if the next one cannot be started.
        for cluster in clusters:
            processes.append(_Process(run, cluster))  # noqa: PERF401
        yield processes
    finally:
        for process in processes:
            process.end()
