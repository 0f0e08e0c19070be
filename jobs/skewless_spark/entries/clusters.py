"""The clusters of a run that are started together: a process each, which the run waits for, and may lose."""

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

from skewless.documents.failure import Failure
from skewless.errors import SkewlessError, SpecError
from skewless.run.directory import RunDirectory
from skewless_spark.entries.pipeline import Watcher

#: Of a cluster that is told to end: then it is killed.
_END_SECONDS = 10.0
_POLL_SECONDS = 0.2
_NAME = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,49}"


class Cluster(NamedTuple):
    """A Spark cluster by a name for people, and the address of its master."""

    name: str
    master: str


class NoClusterError(SkewlessError):
    """All clusters that shared a run have left before its end."""


def cluster_name(name: str) -> str:
    """A name that leases and files can have.

    Raises:
        SpecError: it is none.
    """
    if not re.fullmatch(_NAME, name):
        raise SpecError(
            "option --cluster", "a name of at most 50 letters, digits, dots, hyphens and underscores", repr(name[:80])
        )
    return name


def parse_clusters(given: Sequence[str]) -> list[Cluster]:
    """Clusters as a command gives them: ``NAME=MASTER``.

    Raises:
        SpecError: one of them is not written so, or a name comes twice.
    """
    found: list[Cluster] = []
    for text in given:
        name, _, master = text.partition("=")
        if not master:
            raise SpecError("option --cluster", "NAME=MASTER, like east=spark://east:7077", repr(text[:120]))
        if any(one.name == name for one in found):
            raise SpecError("option --cluster", "a name of its own for each cluster", f"{name!r} twice")
        found.append(Cluster(cluster_name(name), master))
    return found


def stay_with(parent: int) -> None:
    """End this process, whatever it does, when its parent is another one than that."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def run_shared_stages(run: RunDirectory, clusters: Sequence[Cluster], watcher: Watcher) -> Cluster:
    """Have clusters run a prepared job's stages together, until no further one is needed.

    Args:
        run: the run directory, which all of them see.
        clusters: who takes part, one at least.
        watcher: is told of each stage when it has been decided what follows it.

    Returns:
        A cluster that was still there at the end, the first one of them.

    Raises:
        NoClusterError: all of them left; it says what the last one said.
    """
    told = _Told(run, watcher)
    if told.all_done():
        return clusters[0]
    with _started(run, clusters) as processes:
        while not told.all_done():
            if all(process.has_left for process in processes) and not told.all_done():
                raise processes[-1].refusal()
            time.sleep(_POLL_SECONDS)
        return next((one.cluster for one in processes if not one.has_left), clusters[0])


class _Told:
    """The stages that a watcher has been told of."""

    def __init__(self, run: RunDirectory, watcher: Watcher) -> None:
        self._run, self._watcher, self._stages = run, watcher, 0
        watcher.step("stage 0")

    def all_done(self) -> bool:
        """Tell of what is new, and say whether no further stage is needed."""
        while self._run.exists(f"decisions/{self._stages + 1:04d}.json"):
            decision = self._run.decision(self._stages + 1)
            self._watcher.stage_done(self._run.report(self._stages), decision)
            if decision.next_plan is None:
                return True
            self._stages += 1
            self._watcher.step(f"stage {self._stages}")
        return False


class _Process:
    """One cluster's process."""

    def __init__(self, run: RunDirectory, cluster: Cluster) -> None:
        self.cluster, self._run = cluster, run
        self._failure = f"share-{cluster.name}-{secrets.token_hex(4)}"
        words = [
            sys.executable, "-m", "skewless_spark.entries.share_stage", "--run-dir", run.path("").rstrip("/"),
            "--cluster", cluster.name, "--master", cluster.master,
            "--failure-name", self._failure, "--stay-with", str(os.getpid()),
        ]  # fmt: skip
        self._process = subprocess.Popen(  # noqa: S603  # this interpreter, and words of ours
            words,
            stdin=subprocess.DEVNULL,
            # Standard output is for what the run itself says; failures go to standard error.
            stdout=subprocess.DEVNULL,
        )

    @property
    def has_left(self) -> bool:
        """Whether it has ended before the stages have: one that saw their end has seen their decision before."""
        return self._process.poll() not in {None, 0}

    def refusal(self) -> NoClusterError:
        """Why it left, in its own words if it had any."""
        name = f"failures/{self._failure}.json"
        failure = self._run.read(name, Failure) if self._run.exists(name) else None
        came = failure.sentence if failure else f"exit code {self._process.returncode}"
        err = NoClusterError(
            f"run {self._run}",
            "a cluster that runs its stages to their end",
            f"none any more; {self.cluster.name}: {came}",
        )
        err.exit_code = failure.exit_code if failure else 1  # type: ignore[misc]
        return err

    def end(self) -> None:
        """End it; what it still does is not needed."""
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
        # One by one, so that those that have been started end if the next one cannot be.
        for cluster in clusters:
            processes.append(_Process(run, cluster))  # noqa: PERF401
        yield processes
    finally:
        for process in processes:
            process.end()
