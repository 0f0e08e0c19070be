"""Spark's own record of the jobs that a session has run.

It is the status store of the session's JVM, which exists with and without a UI; reading it costs no job. Facts are
named as in Spark's REST interface.
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, cast

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from skewless.documents.stage_report import SparkWork
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
    def silent(self) -> bool:
        """Whether jobs have run since of which nothing is known."""
        return self._last() > self._before and not self.jobs()

    def work(self) -> SparkWork | None:
        """What the jobs since have cost; None if that is not known."""
        jobs = self.jobs()
        try:
            return _work(jobs, [stage for stage in self.stages(jobs) if stage is not NOTHING]) if jobs else None
        except SILENT as err:
            log.info("the work of Spark is not known: %s", err)
            return None

    def _last(self) -> int:
        """The number of the latest job, -1 before the first."""
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


def _work(jobs: Sequence[Told], stages: Sequence[Told]) -> SparkWork:
    tags = [tag for job in jobs for tag in job["jobTags"] or ()]
    return SparkWork(
        executions=len({found[1] for tag in tags if (found := _EXECUTION.search(tag))}),
        jobs=len(jobs),
        tasks=sum(int(stage["numCompleteTasks"]) for stage in stages),
        shuffle_bytes_written=sum(int(stage["shuffleWriteBytes"]) for stage in stages),
        shuffle_bytes_read=sum(int(stage["shuffleReadBytes"]) for stage in stages),
    )


@lru_cache(maxsize=1)
def _mapper(jvm: Any) -> Any:
    """Writes values of the JVM as JSON. It learns their classes as it goes, and so there is one for each JVM."""
    jackson = jvm.com.fasterxml.jackson
    return jackson.databind.ObjectMapper().registerModule(jackson.module.scala.DefaultScalaModule())
