"""Spark's own counts of each input split: rows read, states sent on, seconds. They cost no job.

Spark reads and aggregates rows in one generated loop. Counting rows by split there would be slow: an observation takes
them out of the loop, and a ``groupBy`` with a sum takes 50 % longer. But every Spark task reports how many rows it read
and how many records it sent on, which are its partial states. These counts are used only if their rows add up to the
rows of the states.
"""

from __future__ import annotations

import json
import logging
import time
import urllib.request
from collections.abc import Callable
from http.client import HTTPException
from typing import Any, NamedTuple, cast
from urllib.error import URLError

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from skewless.documents.stage_report import SplitLoad
from skewless_spark.session.connect import connected, ui_address

log = logging.getLogger(__name__)

#: Spark reports its tasks a moment after they have ended.
_PATIENCE_SECONDS = 2.0
_PAUSE_SECONDS = 0.05
#: Asks Spark's UI directly, and not through a proxy that the environment names.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))

Told = dict[str, Any]


class _Teller(NamedTuple):
    """A source of facts about jobs, stages and tasks, named as in Spark's REST interface.

    Attributes:
        jobs: the jobs of this session, or of the whole JVM.
        stage: the last attempt at a stage.
        tasks: the tasks of such an attempt.
    """

    jobs: Callable[[], list[Told]]
    stage: Callable[[int], Told]
    tasks: Callable[[Told], list[Told]]


class SplitsSeen:
    """Remembers which jobs have run, and later returns the loads of the input splits of newer jobs.

    Args:
        spark: the session. The jobs that it runs before ``loads`` is called are looked at.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._teller: _Teller | None = None
        self._before = -1
        try:
            teller = _by_server(spark) if connected() else _by_jvm(spark)
            if teller:
                self._before = max((job["jobId"] for job in teller.jobs()), default=-1)
            self._teller = teller
        except _SILENT as err:
            log.info("input splits are not measured: %s", err)

    def loads(self, rows: int) -> tuple[SplitLoad, ...]:
        """The load of each input split by its number; empty if it is not known, or if the rows do not add up.

        Args:
            rows: the rows reduced since.
        """
        try:
            return self._loads(self._teller, rows) if self._teller and rows else ()
        except _SILENT as err:
            log.info("input splits are not measured: %s", err)
            return ()

    def _loads(self, teller: _Teller, rows: int) -> tuple[SplitLoad, ...]:
        stages = map(teller.stage, self._stages_done(teller))
        reading = [one for one in stages if one["inputRecords"] == rows and not one["shuffleReadRecords"]]
        if len(reading) != 1:
            log.info("input splits are not measured: %d stages of Spark read just these rows", len(reading))
            return ()
        (stage,) = reading
        done = {one["index"]: one["taskMetrics"] for one in teller.tasks(stage) if one["status"] == "SUCCESS"}
        found = tuple(_load(done[index], bool(stage["shuffleWriteRecords"])) for index in sorted(done))
        return found if len(found) == stage["numTasks"] and sum(one.rows for one in found) == rows else ()

    def _stages_done(self, teller: _Teller) -> list[int]:
        """The stages of the jobs since, skipped ones too, once Spark has noticed that the jobs have ended."""
        until = time.monotonic() + _PATIENCE_SECONDS
        while True:
            jobs = [job for job in teller.jobs() if job["jobId"] > self._before]
            if jobs and all(job["status"] != "RUNNING" for job in jobs):
                return sorted({stage for job in jobs for stage in job["stageIds"]})
            if time.monotonic() > until:
                return []
            time.sleep(_PAUSE_SECONDS)


def _load(metrics: Told, sent_on: bool) -> SplitLoad:
    """The load of a split. Without an exchange, nothing counts its states."""
    states = int(metrics["shuffleWriteMetrics"]["recordsWritten"]) if sent_on else None
    return SplitLoad(
        rows=int(metrics["inputMetrics"]["recordsRead"]),
        states=states,
        busy_seconds=round(metrics["executorRunTime"] / 1000.0, 3),
    )


#: Errors of a source that does not answer, or answers in a form we do not know.
_SILENT = (
    Py4JError, PySparkException, URLError, HTTPException, OSError, ValueError, KeyError, TypeError, AttributeError,
)  # fmt: skip


def _by_jvm(spark: SparkSession) -> _Teller:
    """The status store of the session's own JVM, which exists with and without a UI."""
    context, jvm = spark.sparkContext._jsc.sc(), cast("Any", spark.sparkContext._jvm)  # noqa: SLF001
    store = context.statusStore()
    jackson = jvm.com.fasterxml.jackson
    mapper = jackson.databind.ObjectMapper().registerModule(jackson.module.scala.DefaultScalaModule())

    def told(value: Any) -> Any:
        # One text, since a call to the JVM for each figure of each task would take seconds.
        return json.loads(mapper.writeValueAsString(value))

    def jobs() -> list[Told]:
        context.listenerBus().waitUntilEmpty()
        return cast("list[Told]", told(store.jobsList(None)))

    def stage(number: int) -> Told:
        try:
            return cast("Told", told(store.lastStageAttempt(number)))
        except Py4JError:  # Spark keeps nothing about a skipped stage
            return _NOTHING

    def tasks(one: Told) -> list[Told]:
        return cast("list[Told]", told(store.taskList(one["stageId"], one["attemptId"], _attempts(one))))

    return _Teller(jobs, stage, tasks)


def _by_server(spark: SparkSession) -> _Teller | None:
    """The UI of a Spark Connect server; None if its address is not known."""
    address = ui_address(spark)
    if not address:
        return None
    root = f"{address}/api/v1/applications/{spark.conf.get('spark.app.id')}"
    session = f"Session_{cast('Any', spark).session_id}_"

    def jobs() -> list[Told]:
        return [job for job in _asked(f"{root}/jobs") if any(session in tag for tag in job.get("jobTags") or ())]

    def stage(number: int) -> Told:
        return max(_asked(f"{root}/stages/{number}?details=false"), key=lambda one: int(one["attemptId"]))

    def tasks(one: Told) -> list[Told]:
        return _asked(f"{root}/stages/{one['stageId']}/{one['attemptId']}/taskList?length={_attempts(one)}")

    return _Teller(jobs, stage, tasks)


#: Stands for a stage about which nothing is known.
_NOTHING: Told = {"inputRecords": -1, "shuffleReadRecords": 0}


def _attempts(stage: Told) -> int:
    return int(stage["numTasks"]) + int(stage["numFailedTasks"]) + int(stage["numKilledTasks"])


def _asked(address: str) -> list[Told]:
    with _OPENER.open(address, timeout=_PATIENCE_SECONDS) as answer:
        return cast("list[Told]", json.load(answer))
