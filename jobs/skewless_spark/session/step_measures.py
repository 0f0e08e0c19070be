"""The progress of a step, as lines in its log.

The bill has the core-seconds that were held, used and lost to skew. No job is run for it.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import NamedTuple, Self

import psutil
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from skewless.documents.step_documents import StepBill
from skewless.run.directory import RunDirectory, stage_step
from skewless.run.step_times import StepClock, current_clock, timed_step
from skewless_spark.session.session import session_in_jvm
from skewless_spark.session.spark_jobs import SILENT, JobsSeen, Told

#: Our own lines begin with this mark; all other lines are Spark's.
MARK = "skewless: "
#: Seconds between two lines: with the time that a poll takes, a line still comes at least every ten seconds.
HEARTBEAT_SECONDS = 8.0


def say(words: str) -> None:
    """Write one of our own lines and flush it, since a pipe would hold it back until its buffer is full."""
    sys.stdout.write(f"{MARK}{words}\n")
    sys.stdout.flush()


def announce(spark: SparkSession) -> None:
    """Log the id of the Spark application and the address of its UI."""
    say(f"spark application {spark.sparkContext.applicationId} at {spark.sparkContext.uiWebUrl or 'no address'}")


def queued_rows(run: RunDirectory, stage: int) -> int | None:
    """The rows queued for a stage: its waves and the last stage's backlog; None if the listing has no row counts."""
    job, plan = run.job(), run.plan(stage)
    if not job.counted:
        return None
    backlog = run.committed(stage_step(stage - 1)).counts.get("backlog", 0) if stage else 0
    return job.admitted_rows(plan.waves) + backlog


class StepProgress:
    """Logs every few seconds how many tasks and rows of the running Spark stage are done.

    Args:
        queued: rows that the step has to process, if that is known.
    """

    def __init__(
        self, spark: SparkSession, step: str, queued: int | None = None, seconds: float = HEARTBEAT_SECONDS
    ) -> None:
        # The public status tracker has no row counts.
        self._store = session_in_jvm(spark).sparkContext().statusStore()
        self._step, self._queued, self._seconds = step, queued, seconds
        self._over = threading.Event()
        self._teller = threading.Thread(target=self._tell, daemon=True)

    def __enter__(self) -> Self:
        self._teller.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, err: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._teller.join(timeout=self._seconds)

    def line(self) -> str:
        """The progress of the running Spark stage at this moment; if several run, of the latest."""
        active = self._store.activeStages()
        stages = [active.apply(number) for number in range(active.size())]
        if not stages:
            return f"{self._step}: between two Spark jobs"
        latest = max(stages, key=lambda stage: int(stage.stageId()))
        rows = int(latest.inputRecords() + latest.shuffleReadRecords())
        # The first Spark stage of the step reads the queued rows; later ones read fewer.
        of_all = f"of {self._queued:,} rows" if self._queued is not None and rows <= self._queued else "rows read"
        return f"{self._step}: {latest.numCompleteTasks():,} of {latest.numTasks():,} tasks, {rows:,} {of_all}"

    def _tell(self) -> None:
        while not self._over.wait(self._seconds):
            try:
                say(self.line())
            except (Py4JError, OSError):  # the session is being stopped: the step itself logs how it ended
                return


log = logging.getLogger(__name__)

#: From the call that writes the outcome of a query to its return.
RUN_QUERY = "run the query"
_BEGUN = {"process": False}


@contextmanager
def spark_step(run: RunDirectory, step: str) -> Iterator[StepClock]:
    """Measure a step of Spark. The first one of a process begins with the process, or with the JVM that started it."""
    now = time.time()
    began = None if _BEGUN["process"] else process_start()
    _BEGUN["process"] = True
    with timed_step(run, step, time.time, began) as clock:
        if began is not None:
            clock.add("start the process, import", began, now)
        yield clock


@contextmanager
def spark_jobs(spark: SparkSession) -> Iterator[None]:
    """Add the Spark jobs of the block, and what they cost, to the step that is being measured, also if it fails."""
    clock = current_clock()
    if clock is None:
        yield
        return
    seen = JobsSeen(spark)
    try:
        yield
    finally:
        jobs = seen.jobs()
        for job in jobs:
            started, ended = job_times(job)
            clock.add("Spark job", started, ended, int(job["numCompletedTasks"]))
        clock.split_off("plan the query", RUN_QUERY, "Spark job")
        clock.bill = bill_of(seen, jobs, clock.started, clock.now())


def job_times(job: Told) -> tuple[float, float]:
    """When a job was submitted and when it ended, seconds since 1970; 0 where Spark does not tell."""
    return float(job.get("submissionTime") or 0) / 1000, float(job.get("completionTime") or 0) / 1000


def process_start() -> float:
    """When this process was started, or under spark-submit its JVM, seconds since 1970."""
    return psutil.Process(os.getppid() if "PYSPARK_GATEWAY_PORT" in os.environ else os.getpid()).create_time()


class _Executor(NamedTuple):
    cores: int
    added: float
    removed: float

    def held(self, began: float, ended: float) -> float:
        """Core-seconds between two times."""
        return self.cores * max(0.0, min(self.removed, ended) - max(self.added, began))


def bill_of(seen: JobsSeen, jobs: Sequence[Told], began: float, ended: float) -> StepBill | None:
    """The bill of a step whose Spark jobs are these; None if Spark does not tell, or if what it tells does not add up.

    Args:
        began: when the step did, seconds since 1970, as ``ended``.
    """
    try:
        return None if not jobs and seen.silent else _bill(seen, jobs, began, ended)
    except SILENT as err:
        log.info("what the step has cost is not known: %s", err)
        return None


def _bill(seen: JobsSeen, jobs: Sequence[Told], began: float, ended: float) -> StepBill:
    each = seen.task_cores
    executors = [
        _Executor(int(raw["totalCores"]), raw["addTime"] / 1000.0, (raw["removeTime"] or ended * 1000.0) / 1000.0)
        for raw in seen.executors()
    ]
    all_tries = seen.tries(jobs)
    if len(all_tries) < sum(int(job["numCompletedStages"]) + int(job["numFailedStages"]) for job in jobs):
        raise ValueError("Spark has dropped stages of the step")
    tries = [stage for stage in all_tries if _tasks(stage)]
    skew_seconds = 0.0
    for last, ends in _without_break(seen, tries, sum(executor.cores for executor in executors) // each):
        there = sum(executor.cores for executor in executors if executor.added < last <= executor.removed)
        skew_seconds += each * _waited(last, ends, there // each)
    used_millis = sum(int(stage["executorRunTime"]) + int(stage["executorDeserializeTime"]) for stage in tries)
    return StepBill(
        attempts=(),
        cores=sum(executor.cores for executor in executors if executor.removed >= ended),
        tasks=sum(map(_tasks, tries)),
        held_seconds=round(sum(executor.held(began, ended) for executor in executors), 3),
        used_seconds=round(each * used_millis / 1000.0, 3),
        skew_seconds=round(skew_seconds, 3),
        shuffle_bytes=sum(int(stage["shuffleWriteBytes"]) for stage in tries),
        spilled_bytes=sum(int(stage["diskBytesSpilled"]) for stage in tries),
    )


def _without_break(seen: JobsSeen, tries: Sequence[Told], slots: int) -> list[tuple[float, list[float]]]:
    """Of each time in which stages ran without a break: its end, and when tasks ended that ended last in each stage.

    Stages that overlap are of one such time, as a core that one leaves is taken by another.
    """
    busy: list[tuple[float, list[float]]] = []
    for stage in sorted(tries, key=lambda stage: int(stage["firstTaskLaunchedTime"])):
        ends = seen.last_ends(stage, slots)
        last = max(ends)
        if busy and stage["firstTaskLaunchedTime"] / 1000.0 < busy[-1][0]:
            before, others = busy.pop()
            last, ends = max(before, last), others + ends
        busy.append((last, ends))
    return busy


def _waited(last: float, ends: Sequence[float], slots: int) -> float:
    """For how long slots had no task left: the tasks that ended last ran side by side, one on each of them."""
    return sum(last - end for end in sorted(ends)[-slots:]) if slots else 0.0


def _tasks(stage: Told) -> int:
    return int(stage["numCompleteTasks"]) + int(stage["numFailedTasks"]) + int(stage["numKilledTasks"])
