"""Spark's own record of the jobs that a session has run: of the session's JVM, or of a Spark Connect server's UI.

Reading it costs no job. Facts are named as in Spark's REST interface.
"""

from __future__ import annotations

import json
import logging
import re
import time
import urllib.request
from collections.abc import Callable, Sequence
from functools import lru_cache
from http.client import HTTPException
from typing import Any, NamedTuple, cast
from urllib.error import URLError

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from skewless.documents.stage_report import SparkWork
from skewless_spark.session.connect import connected, ui_address

log = logging.getLogger(__name__)

#: Spark records its jobs a moment after they have ended.
_PATIENCE_SECONDS = 2.0
_PAUSE_SECONDS = 0.05
#: Asks Spark's UI directly, and not through a proxy that the environment names.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))
#: Spark tags each job with the SQL execution that started it.
_EXECUTION = re.compile(r"-execution-root-id-(\d+)\Z")

Told = dict[str, Any]


class _Teller(NamedTuple):
    """A source of facts about jobs, stages and tasks.

    Attributes:
        last: the number of the latest job, -1 before the first.
        jobs: the jobs after a number.
        stage: the last attempt at a stage.
        tasks: the tasks of such an attempt.
    """

    last: Callable[[], int]
    jobs: Callable[[int], list[Told]]
    stage: Callable[[int], Told]
    tasks: Callable[[Told], list[Told]]


class JobsSeen:
    """The jobs that a session runs from now on. What cannot be asked is not known, and no error.

    Args:
        spark: the session.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._teller: _Teller | None = None
        self._before = -1
        try:
            teller = _by_server(spark) if connected() else _by_jvm(spark)
            if teller:
                self._before = teller.last()
            self._teller = teller
        except SILENT as err:
            log.info("jobs of Spark are not known: %s", err)

    def jobs(self) -> list[Told]:
        """The jobs since, once Spark has recorded that they have ended; empty if they are not known."""
        if self._teller is None:
            return []
        until = time.monotonic() + _PATIENCE_SECONDS
        try:
            while True:
                jobs = self._teller.jobs(self._before)
                if jobs and all(job["status"] != "RUNNING" for job in jobs):
                    return jobs
                if (not jobs and not connected()) or time.monotonic() > until:
                    return []
                time.sleep(_PAUSE_SECONDS)
        except SILENT as err:
            log.info("jobs of Spark are not known: %s", err)
            return []

    def stages(self, jobs: Sequence[Told]) -> list[Told]:
        """The stages of these jobs, by their number; ``NOTHING`` for one that was skipped.

        Raises:
            Exception: one of ``SILENT``.
        """
        numbers = sorted({stage for job in jobs for stage in job["stageIds"]})
        return [self._teller.stage(number) for number in numbers] if self._teller else []

    def tasks(self, stage: Told) -> list[Told]:
        """The tasks of a stage.

        Raises:
            Exception: one of ``SILENT``.
        """
        return self._teller.tasks(stage) if self._teller else []

    def work(self) -> SparkWork | None:
        """What the jobs since have cost; None if that is not known."""
        jobs = self.jobs()
        try:
            return _work(jobs, [stage for stage in self.stages(jobs) if stage is not NOTHING]) if jobs else None
        except SILENT as err:
            log.info("the work of Spark is not known: %s", err)
            return None


def _work(jobs: Sequence[Told], stages: Sequence[Told]) -> SparkWork:
    tags = [tag for job in jobs for tag in job["jobTags"] or ()]
    return SparkWork(
        executions=len({found[1] for tag in tags if (found := _EXECUTION.search(tag))}),
        jobs=len(jobs),
        tasks=sum(int(stage["numCompleteTasks"]) for stage in stages),
        shuffle_bytes_written=sum(int(stage["shuffleWriteBytes"]) for stage in stages),
        shuffle_bytes_read=sum(int(stage["shuffleReadBytes"]) for stage in stages),
    )


#: Errors of a source that does not answer, or answers in a form we do not know.
SILENT = (
    Py4JError, PySparkException, URLError, HTTPException, OSError, ValueError, KeyError, TypeError, AttributeError,
)  # fmt: skip


@lru_cache(maxsize=1)
def _mapper(jvm: Any) -> Any:
    """Writes values of the JVM as JSON. It learns their classes as it goes, and so there is one for each JVM."""
    jackson = jvm.com.fasterxml.jackson
    return jackson.databind.ObjectMapper().registerModule(jackson.module.scala.DefaultScalaModule())


def _by_jvm(spark: SparkSession) -> _Teller:
    """The status store of the session's own JVM, which exists with and without a UI."""
    context, jvm = spark.sparkContext._jsc.sc(), cast("Any", spark.sparkContext._jvm)  # noqa: SLF001
    store, mapper = context.statusStore(), _mapper(jvm)

    def told(value: Any) -> Any:
        # One text, since a call to the JVM for each figure of each task would take seconds.
        return json.loads(mapper.writeValueAsString(value))

    def last() -> int:
        return int(context.dagScheduler().numTotalJobs()) - 1

    def jobs(after: int) -> list[Told]:
        context.listenerBus().waitUntilEmpty()
        return [told(store.job(number)) for number in range(after + 1, last() + 1)]

    def stage(number: int) -> Told:
        try:
            return cast("Told", told(store.lastStageAttempt(number)))
        except Py4JError:  # Spark keeps nothing about a skipped stage
            return NOTHING

    def tasks(one: Told) -> list[Told]:
        return cast("list[Told]", told(store.taskList(one["stageId"], one["attemptId"], _attempts(one))))

    return _Teller(last, jobs, stage, tasks)


def _by_server(spark: SparkSession) -> _Teller | None:
    """The UI of a Spark Connect server; None if its address is not known."""
    address = ui_address(spark)
    if not address:
        return None
    root = f"{address}/api/v1/applications/{spark.conf.get('spark.app.id')}"
    session = f"Session_{cast('Any', spark).session_id}_"

    def jobs(after: int) -> list[Told]:
        known = (job for job in _asked(f"{root}/jobs") if job["jobId"] > after)
        return [job for job in known if any(session in tag for tag in job.get("jobTags") or ())]

    def last() -> int:
        return max((int(job["jobId"]) for job in jobs(-1)), default=-1)

    def stage(number: int) -> Told:
        return max(_asked(f"{root}/stages/{number}?details=false"), key=lambda one: int(one["attemptId"]))

    def tasks(one: Told) -> list[Told]:
        return _asked(f"{root}/stages/{one['stageId']}/{one['attemptId']}/taskList?length={_attempts(one)}")

    return _Teller(last, jobs, stage, tasks)


#: Stands for a stage about which nothing is known.
NOTHING: Told = {"inputRecords": -1, "shuffleReadRecords": 0}


def _attempts(stage: Told) -> int:
    return int(stage["numTasks"]) + int(stage["numFailedTasks"]) + int(stage["numKilledTasks"])


def _asked(address: str) -> list[Told]:
    with _OPENER.open(address, timeout=_PATIENCE_SECONDS) as answer:
        return cast("list[Told]", json.load(answer))
