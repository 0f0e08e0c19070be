"""What a step of Spark measures of itself: its process, its session and its Spark jobs."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from skewless.run.directory import RunDirectory
from skewless.run.step_times import StepClock, current_clock, timed_step
from skewless_spark.session.spark_jobs import JobsSeen, Told
from skewless_spark.session.step_bill import bill_of

#: Where Linux tells when a process was started, and which of the fields behind its name that is.
_STATUS, _STARTED_FIELD = "/proc/{}/stat", 19
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


def process_start() -> float | None:
    """When this process was started, or under spark-submit its JVM; None where only Linux would tell."""
    process = os.getppid() if "PYSPARK_GATEWAY_PORT" in os.environ else os.getpid()
    try:
        text = Path(_STATUS.format(process)).read_text(encoding="utf-8")
        ticks = int(text.rpartition(")")[2].split()[_STARTED_FIELD])
        return time.time() - (time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK"))
    except (OSError, ValueError, IndexError, AttributeError):
        return None
