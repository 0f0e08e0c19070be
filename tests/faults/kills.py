"""Attempts that are killed: at their points, when a file appears, or with a part of Spark."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import psutil

from skewless_spark.session.step_lease import OWNER
from tests.faults.attempt import PATIENCE_SECONDS, Ended, kill_tree
from tests.faults.harness import Harness, Outcome
from tests.faults.killed import Fault, Point, When
from tests.faults.steps import JOBS, MERGE, Step
from tests.faults.trial import Trial
from tests.faults.world import chance_of

#: What Spark itself writes, and no hook hears of, in the order in which it appears.
_WRITTEN_BY_SPARK = {
    "stage-0": ("kind=backlog",),
    "stage-1": ("_temporary", "_temporary/**/kind=native/*", "_temporary/**/kind=backlog/*", "kind=backlog/*.parquet"),
    "stage-2": ("_temporary", "_temporary/**/kind=python/*", "kind=native/*.parquet", "kind=python/*.parquet"),
    "merge": ("data/_temporary", "data/_temporary/**/*.parquet", "data/*.parquet"),
}
_WITH_JVM = (
    ("stage-1", "_temporary/**/kind=native/*"),
    ("stage-2", "kind=python/*.parquet"),
    ("merge", "data/_temporary"),
)
_AT_COMMITS = (("stage-1", "link stages/0001/COMMIT.json"), ("merge", "link result/COMMIT.json"))
BOTH: tuple[When, When] = ("before", "after")
_OF = {"merge": "result", "validate": "quality"}


def trials(h: Harness) -> Iterator[Trial]:
    seeds = h.seeds(1)
    for step in h.tried_steps():
        for point in _points(h, step):
            for when in BOTH:
                act = partial(kill_at, step, point, when)
                yield Trial("kill", step.name, f"{when} {point.name}", next(seeds), act, step.spark)
    if not h.spark:
        return
    for slug, patterns in _WRITTEN_BY_SPARK.items():
        step = h.step(slug)
        for pattern in (*patterns, *patterns):
            act = partial(_as_appears, step, pattern)
            yield Trial("kill driver", step.name, f"as {pattern} appears", next(seeds), act, spark=True)
    yield from _parts_of_spark(h, seeds)


def _parts_of_spark(h: Harness, seeds: Iterator[int]) -> Iterator[Trial]:
    for step in (h.step("stage-1"), h.step("stage-2"), MERGE) * 4:
        yield Trial("kill worker", step.name, "at some moment", next(seeds), partial(_worker, step), spark=True)
    for slug, pattern in _WITH_JVM:
        step, fault = h.step(slug), f"as {pattern} appears"
        for kind, only_jvm in (("kill all", False), ("kill JVM", True)):
            yield Trial(kind, step.name, fault, next(seeds), partial(_whole, step, pattern, only_jvm), spark=True)
    for slug, at in _AT_COMMITS:
        step = h.step(slug)
        for when in BOTH:
            act = partial(_launched, step, at, when)
            yield Trial("kill all", step.name, f"{when} {at}", next(seeds), act, spark=True)


def _points(h: Harness, step: Step) -> list[Point]:
    """Those of a step to be killed at: all; where Spark makes each dear, the writes, and few of many alike."""
    points = h.points[step.slug]
    if not step.spark:
        return points
    if step.slug in {"stage-0", "stage-1"}:  # they write as the last stage does
        return [point for point in points if point.path.endswith("COMMIT.json") and point.action == "link"]
    # The records of the lease are written alike without Spark, and tried there.
    writes = [point for point in points if point.action != "read" and f"/{OWNER}/" not in point.path]
    return [point for point in writes if point.nth == 1]


def kill_at(step: Step, point: Point, when: When, h: Harness, seed: int) -> Outcome:
    h.begin(step)
    ended = h.attempt(step, Fault(point, when)).ended()
    assert ended.code == -signal.SIGKILL, f"it was not killed, but ended with {ended.code}:\n{ended.said[-2000:]}"
    return h.must_recover(step, seed)


def _as_appears(step: Step, pattern: str, h: Harness, seed: int) -> Outcome:
    h.begin(step)
    attempt = h.attempt(step)
    _await(h, step, pattern, attempt.running)
    attempt.kill()
    assert attempt.ended().code in {0, -signal.SIGKILL}
    return h.must_recover(step, seed)


def _worker(step: Step, h: Harness, seed: int) -> Outcome:
    h.begin(step)
    attempt, chance = h.attempt(step), chance_of(seed)
    until = time.monotonic() + chance.uniform(0.2, 3.0)
    while time.monotonic() < until and attempt.running():
        time.sleep(0.005)
    for worker in h.jvm.workers():
        worker.kill()
    h.check_failure(step, attempt.ended())
    return h.must_recover(step, seed)


def _whole(step: Step, pattern: str, only_jvm: bool, h: Harness, seed: int) -> Outcome:
    h.begin(step)
    process, log = _entry(h, step, [])
    _await(h, step, pattern, lambda: process.poll() is None)
    if only_jvm:
        for one in _session(process.pid):
            with suppress(psutil.NoSuchProcess):
                if one.name() == "java":
                    one.kill()
        h.check_failure(step, _end_of(process, log))
    else:
        kill_tree(process.pid)
        process.wait()
    return h.must_recover(step, seed)


def _launched(step: Step, at: str, when: When, h: Harness, seed: int) -> Outcome:
    """The same at a point: the launcher strikes at the driver, and whoever runs the task at the rest."""
    h.begin(step)
    process, log = _entry(h, step, ["--root", str(h.world.folder), "--at", at, "--when", when])
    ended = _end_of(process, log)
    assert ended.code == -signal.SIGKILL, ended.said[-2000:]
    for one in _session(process.pid):
        with suppress(psutil.NoSuchProcess):
            one.kill()
    return h.must_recover(step, seed)


def _entry(h: Harness, step: Step, watched: list[str]) -> tuple[subprocess.Popen[bytes], Path]:
    log = h.new_log(step)
    launcher = ["-m", "tests.faults.killed", *watched] if watched else []
    environment = {**os.environ, "SKEWLESS_DRIVER_MEMORY": "1g"}
    command = [sys.executable, *launcher, str(JOBS / step.script), *step.argv(h.world)]
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, stdout=out, stderr=out, start_new_session=True, env=environment, cwd=JOBS.parent
        )
    return process, log


def _session(leader: int) -> list[psutil.Process]:
    """The processes of a session; they outlive its leader."""

    def session_of(process: psutil.Process) -> int:
        try:
            return os.getsid(process.pid)
        except OSError:
            return -1

    return [one for one in psutil.process_iter() if session_of(one) == leader]


def _end_of(process: subprocess.Popen[bytes], log: Path) -> Ended:
    try:
        code = process.wait(PATIENCE_SECONDS)
    except subprocess.TimeoutExpired:
        kill_tree(process.pid)
        raise AssertionError("an entry hangs") from None
    return Ended(code, log.read_text(encoding="utf-8", errors="replace"))


def _await(h: Harness, step: Step, pattern: str, running: Callable[[], bool]) -> None:
    """Wait until a file of an attempt appears, or the attempt is over."""
    folder = h.world.folder / _OF.get(step.slug, f"stages/{step.slug.removeprefix('stage-'):0>4}") / "attempts"
    deadline = time.monotonic() + PATIENCE_SECONDS
    while running():
        with suppress(FileNotFoundError):  # a folder that went while it was looked into
            if next(folder.glob(f"*/{pattern}"), None):
                return
        assert time.monotonic() < deadline, f"{pattern} did not appear"
        time.sleep(0.002)
