"""What a step costs, by Spark's own record of the jobs of a session, and its progress as lines in its log.

The record is the status store of the session's JVM, which exists with and without a UI; reading it costs no job. Facts
are named as in Spark's REST interface. The bill has the core-seconds that were held, used and lost to skew.
"""

import json
import logging
import os
import re
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from types import TracebackType
from typing import Any, NamedTuple, Self, cast

import psutil
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from skewless.documents.stage_report import SparkWork
from skewless.documents.step_documents import StepBill
from skewless.run.directory import RunDirectory, stage_step
from skewless.run.step_times import StepClock, current_clock, timed_step
from skewless_spark.session.session import jvm_of, session_in_jvm

log = logging.getLogger(__name__)

#: Spark records its jobs a moment after they have ended.
_PATIENCE_SECONDS = 2.0
_PAUSE_SECONDS = 0.05
#: Spark tags each job with the SQL execution that started it.
_EXECUTION = re.compile(r"-execution-root-id-(\d+)\Z")
#: The index of Spark's store that has tasks by their end (``TaskIndexNames.COMPLETION_TIME``).
_BY_END = "ct"
#: An answer of more than 8 KiB, which seven tasks have, is sent in pieces, and the last waits 40 ms for a reply to the
#: others. So a long text is asked for in parts of so many characters; beyond ``_MANY``, that is not quicker.
_PART, _MANY = 7_000, 300_000
#: Errors of a JVM that does not answer, or answers in a form we do not know.
SILENT = (Py4JError, PySparkException, OSError, ValueError, KeyError, TypeError, AttributeError)

Told = dict[str, Any]
#: Stands for a stage about which nothing is known.
NOTHING: Told = {"inputRecords": -1, "shuffleReadRecords": 0}


class JobsSeen:
    """The jobs that a session runs from now on.

    Where Spark does not answer, ``jobs`` and ``work`` know nothing, and all else raises one of ``SILENT``.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._context: Any = session_in_jvm(spark).sparkContext()
        self._store: Any = self._context.statusStore()
        self._jvm: Any = jvm_of(spark)
        self._before = self._last()

    def jobs(self) -> list[Told]:
        """The jobs since, once Spark has recorded that they have ended; empty if they are not known."""
        until = time.monotonic() + _PATIENCE_SECONDS
        try:
            while True:
                self._context.listenerBus().waitUntilEmpty()
                jobs = [self._told(self._store.job(number)) for number in range(self._before + 1, self._last() + 1)]
                if all(job["status"] != "RUNNING" for job in jobs):
                    return jobs
                if time.monotonic() > until:
                    return []
                time.sleep(_PAUSE_SECONDS)
        except SILENT as err:
            log.info("jobs of Spark are not known: %s", err)
            return []

    def stages(self, jobs: Sequence[Told]) -> list[Told]:
        """The stages of these jobs, by their number; ``NOTHING`` for one that was skipped."""
        return [self._stage(number) for number in sorted({stage for job in jobs for stage in job["stageIds"]})]

    def tasks(self, stage: Told) -> list[Told]:
        """The tasks of a stage."""
        attempts = int(stage["numTasks"]) + int(stage["numFailedTasks"]) + int(stage["numKilledTasks"])
        return self._told_in_parts(self._store.taskList(stage["stageId"], stage["attemptId"], attempts))

    def tries(self, jobs: Sequence[Told]) -> list[Told]:
        """All attempts at the stages of these jobs; a skipped stage has none."""
        numbers = sorted({stage for job in jobs for stage in job["stageIds"]})
        told = (self._told(self._store.stageData(number, False, None, False, None)) for number in numbers)
        return [one for tries in told for one in tries]

    def last_ends(self, stage: Told, most: int) -> list[float]:
        """When the tasks of a stage ended that ended last, seconds since 1970, at most so many."""
        by_end = self._jvm.scala.Some(_BY_END)
        listed = self._store.taskList(stage["stageId"], stage["attemptId"], 0, most, by_end, False, None)
        tasks = self._told_in_parts(listed)
        return [(task["launchTime"] + task["duration"]) / 1000.0 for task in tasks]

    def executors(self) -> list[Told]:
        """All executors of the session, those that are gone among them."""
        return self._told_in_parts(self._store.executorList(False))

    @property
    def task_cores(self) -> int:
        """Cores that a task takes."""
        return int(self._context.conf().get("spark.task.cpus", "1"))

    @property
    def slots(self) -> int | None:
        """How many tasks the application runs at one time, by the executors that are there now; None if not known."""
        try:
            executors = self._told_in_parts(self._store.executorList(True))
            return sum(int(one["totalCores"]) for one in executors) // self.task_cores or None
        except SILENT:
            return None

    @property
    def silent(self) -> bool:
        """Whether jobs have run since of which nothing is known."""
        return self._last() > self._before and not self.jobs()

    def work(self) -> SparkWork | None:
        """What the jobs since have cost; None if that is not known."""
        jobs = self.jobs()
        try:
            stages = [stage for stage in self.stages(jobs) if stage is not NOTHING]
            tags = [tag for job in jobs for tag in job["jobTags"] or ()]
            executions = {execution[1] for tag in tags if (execution := _EXECUTION.search(tag))}
            work = SparkWork(
                executions=len(executions),
                jobs=len(jobs),
                tasks=sum(int(stage["numCompleteTasks"]) for stage in stages),
                shuffle_bytes_written=sum(int(stage["shuffleWriteBytes"]) for stage in stages),
                shuffle_bytes_read=sum(int(stage["shuffleReadBytes"]) for stage in stages),
            )
        except SILENT as err:
            log.info("the work of Spark is not known: %s", err)
            return None
        return work if jobs else None

    def _last(self) -> int:
        return int(self._context.dagScheduler().numTotalJobs()) - 1

    def _stage(self, number: int) -> Told:
        try:
            return cast("Told", self._told(self._store.lastStageAttempt(number)))
        except Py4JError:  # Spark keeps nothing about a skipped stage
            return NOTHING

    def _told_in_parts(self, listed: Any) -> list[Told]:
        buffer = self._jvm.java.io.StringWriter()
        _mapper(self._jvm).writeValue(buffer, listed)
        text, length = buffer.getBuffer(), int(buffer.getBuffer().length())
        size = _PART if length < _MANY else length
        parts = (text.substring(at, min(at + size, length)) for at in range(0, length, size))
        return cast("list[Told]", json.loads("".join(parts)))

    def _told(self, value: Any) -> Any:
        # One text, since a call to the JVM for each figure of each task would take seconds.
        return json.loads(_mapper(self._jvm).writeValueAsString(value))


@lru_cache(maxsize=1)
def _mapper(jvm: Any) -> Any:
    """Writes values of the JVM as JSON. It learns their classes as it goes, and so there is one for each JVM."""
    jackson = jvm.com.fasterxml.jackson
    return jackson.databind.ObjectMapper().registerModule(jackson.module.scala.DefaultScalaModule())


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


#: From the call that writes the outcome of a query to its return.
RUN_QUERY = "run the query"
_BEGUN = {"process": False}


@contextmanager
def spark_step(run: RunDirectory, step: str) -> Iterator[StepClock]:
    """Measure a step of Spark. The first one of a process begins with the process, or with the JVM that started it."""
    now = time.time()
    began = None
    if not _BEGUN["process"]:  # under spark-submit, its JVM has begun before it
        starter = os.getppid() if "PYSPARK_GATEWAY_PORT" in os.environ else os.getpid()
        began, _BEGUN["process"] = psutil.Process(starter).create_time(), True
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
            # When it was submitted and when it ended, 0 where Spark does not tell.
            started, ended = (float(job.get(moment) or 0) / 1000 for moment in ("submissionTime", "completionTime"))
            clock.add("Spark job", started, ended, int(job["numCompletedTasks"]))
        clock.split_off("plan the query", RUN_QUERY, "Spark job")
        clock.bill = bill_of(seen, jobs, clock.started, clock.now())


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
        # For how long slots had no task left: the tasks that ended last ran side by side, one on each of them.
        if slots := there // each:
            skew_seconds += each * sum(last - end for end in sorted(ends)[-slots:])
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


def _tasks(stage: Told) -> int:
    return int(stage["numCompleteTasks"]) + int(stage["numFailedTasks"]) + int(stage["numKilledTasks"])
