"""What Spark did in a stretch of time: its jobs and their tasks, from its own status store; where wall time went."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from skewless_spark.session.session import session_in_jvm


@dataclass(frozen=True)
class TaskWork:
    """One successful task.

    Attributes:
        started: seconds since the epoch.
        seconds: from its start to its end, as the scheduler saw it.
        input_rows: read from files.
        shuffled_rows: read from other tasks.
        given_rows: written for other tasks.
        given_bytes: the same, compressed.
        written_bytes: written to files.
    """

    started: float
    seconds: float
    input_rows: int
    shuffled_rows: int
    given_rows: int
    given_bytes: int
    written_bytes: int


@dataclass(frozen=True)
class StageWork:
    """One stage of Spark's; those that were skipped, as their output was still there, are left out."""

    number: int
    tasks: tuple[TaskWork, ...]

    def total(self, figure: str) -> int:
        """The sum of a figure over the tasks."""
        return sum(getattr(task, figure) for task in self.tasks)

    def largest(self, figure: str) -> float:
        """The largest figure of a task."""
        return max((getattr(task, figure) for task in self.tasks), default=0)


@dataclass(frozen=True)
class QueryWork:
    """One SQL query: what a ``collect`` or a ``write`` of a data frame is, from planning to its last job.

    Attributes:
        description: the call, and where it stands ("collect at .../stage_histogram.py:140").
        started: seconds since the epoch, by the JVM's clock.
        seconds: until it was done.
        jobs: numbers of its jobs.
    """

    description: str
    started: float
    seconds: float
    jobs: frozenset[int]


@dataclass(frozen=True)
class JobWork:
    """One job of Spark's.

    Attributes:
        number: its own.
        name: the call that started it ("parquet at ...").
        started: seconds since the epoch, by the JVM's clock.
        seconds: until its last task ended.
        stages: those that it ran.
    """

    number: int
    name: str
    started: float
    seconds: float
    stages: tuple[StageWork, ...]


def next_job(spark: SparkSession) -> int:
    """A job number that no job had before now: where a stretch of time begins."""
    jobs = _listed(_store(spark).jobsList(None))
    return max((int(job.jobId()) for job in jobs), default=-1) + 1


def jobs_since(spark: SparkSession, first: int) -> list[JobWork]:
    """The jobs of this number and above, in order; waits until their ends have been told."""
    store = _store(spark)
    jobs = sorted((job for job in _listed(store.jobsList(None)) if job.jobId() >= first), key=lambda job: job.jobId())
    seen: set[int] = set()
    found = []
    for job in jobs:
        numbers = [int(number) for number in _listed(job.stageIds()) if int(number) not in seen]
        seen.update(numbers)
        started, ended = (job.submissionTime().get().getTime() / 1e3, job.completionTime().get().getTime() / 1e3)
        stages = tuple(stage for number in sorted(numbers) if (stage := _stage(store, number)).tasks)
        found.append(JobWork(int(job.jobId()), str(job.name()), started, ended - started, stages))
    return found


def queries_since(spark: SparkSession, moment: float) -> list[QueryWork]:
    """The SQL queries that began at or after a moment, seconds since the epoch, in order."""
    _store(spark)
    found = []
    for query in _listed(session_in_jvm(spark).sharedState().statusStore().executionsList()):
        started = query.submissionTime() / 1e3
        if started >= moment and query.completionTime().isDefined():
            seconds = query.completionTime().get().getTime() / 1e3 - started
            numbers = frozenset(int(number) for number in _listed(query.jobs().keySet()))
            found.append(QueryWork(str(query.description()), started, seconds, numbers))
    return sorted(found, key=lambda query: query.started)


def stages_of(jobs: Sequence[JobWork]) -> list[StageWork]:
    """The stages of some jobs, in order."""
    return [stage for job in jobs for stage in job.stages]


def _store(spark: SparkSession) -> Any:
    context = session_in_jvm(spark).sparkContext()
    context.listenerBus().waitUntilEmpty()
    return context.statusStore()


def _stage(store: Any, number: int) -> StageWork:
    try:
        tasks = _listed(store.taskList(number, 0, 1 << 20))
    except Py4JJavaError:  # a stage that was never run is not known
        tasks = []
    return StageWork(number, tuple(_task(task) for task in tasks if task.status() == "SUCCESS"))


def _task(task: Any) -> TaskWork:
    metrics = task.taskMetrics().get()
    read, given = metrics.shuffleReadMetrics(), metrics.shuffleWriteMetrics()
    return TaskWork(
        started=task.launchTime().getTime() / 1e3,
        seconds=float(task.duration().get()) / 1e3,
        input_rows=int(metrics.inputMetrics().recordsRead()),
        shuffled_rows=int(read.recordsRead()),
        given_rows=int(given.recordsWritten()),
        given_bytes=int(given.bytesWritten()),
        written_bytes=int(metrics.outputMetrics().bytesWritten()),
    )


def _listed(scala: Any) -> list[Any]:
    """A Scala sequence as a list."""
    iterator, found = scala.iterator(), []
    while iterator.hasNext():
        found.append(iterator.next())
    return found


#: What wall time goes into, and nothing else: together these are the wall time.
EVEN = "tasks, if spread evenly over the slots"
UNEVEN = "slots that wait for the last tasks"
NO_TASK = "queries without a task: planning, scheduling, commit"
NO_QUERY = "no query: building them, decisions, listing, commits"


def profiled(
    queries: Sequence[QueryWork], jobs: Sequence[JobWork], slots: int, wall_seconds: float
) -> dict[str, float]:
    """Seconds of wall time by what they go into; they add up to it.

    A job outside any query counts as one.
    """
    within = {number for query in queries for number in query.jobs}
    spans = [(query.started, query.started + query.seconds) for query in queries]
    spans += [(job.started, job.started + job.seconds) for job in jobs if job.number not in within]
    tasks = [task for stage in stages_of(jobs) for task in stage.tasks]
    even = sum(task.seconds for task in tasks) / slots
    any_task = _covered([(task.started, task.started + task.seconds) for task in tasks])
    queried = _covered([*spans, *((task.started, task.started + task.seconds) for task in tasks)])
    return {EVEN: even, UNEVEN: any_task - even, NO_TASK: queried - any_task, NO_QUERY: wall_seconds - queried}


def _covered(spans: Sequence[tuple[float, float]]) -> float:
    """How long at least one of some spans lasts."""
    found, until = 0.0, float("-inf")
    for started, ended in sorted(spans):
        found += max(0.0, ended - max(started, until))
        until = max(until, ended)
    return found
