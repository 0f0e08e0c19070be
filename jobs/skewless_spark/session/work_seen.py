"""What Spark is working on: asked of the session's own JVM, or of the Spark Connect server."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, cast
from urllib.error import URLError

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from skewless_spark.session.connect import ui_address

_PATIENCE_SECONDS = 2.0
#: Asks the server directly, and not through a proxy that the environment names.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class WorkSeen(NamedTuple):
    """The running Spark stage; if several run, the latest.

    Attributes:
        done: tasks that have ended.
        tasks: all tasks of the stage.
        rows: rows read so far, from the input or a shuffle; None if they are not counted.
        bytes_read: bytes of the input read so far.
    """

    done: int
    tasks: int
    rows: int | None
    bytes_read: int = 0


class SparkGoneError(Exception):
    """The JVM or the server does not answer any more."""


Look = Callable[[], WorkSeen | None]


def by_jvm(spark: SparkSession) -> Look:
    """Ask the status store of the session's own JVM, since the public status tracker has no row counts."""
    store = spark.sparkContext._jsc.sc().statusStore()  # noqa: SLF001

    def look() -> WorkSeen | None:
        try:
            active = store.activeStages()
            stages = [active.apply(number) for number in range(active.size())]
            if not stages:
                return None
            latest = max(stages, key=lambda stage: int(stage.stageId()))
            rows = latest.inputRecords() + latest.shuffleReadRecords()
            return WorkSeen(latest.numCompleteTasks(), latest.numTasks(), rows)
        except Py4JError as err:
            raise SparkGoneError from err

    return look


def by_server(spark: SparkSession) -> Look:
    """Listen to the server's progress reports for this session, and ask its UI for rows, if its address is known."""
    running: list[Any] = []

    def told(stages: Iterable[Any] | None, inflight_tasks: int, operation_id: str | None, done: bool) -> None:
        del inflight_tasks, operation_id
        running[:] = [] if done else [one for one in stages or () if not one.done]

    cast("Any", spark).registerProgressHandler(told)
    address, application = ui_address(spark), spark.conf.get("spark.app.id")

    def look() -> WorkSeen | None:
        # The server also lists stages that wait for others: none of their tasks has begun.
        begun = [one for one in list(running) if one.num_completed_tasks or one.num_bytes_read] or list(running)
        if not begun:
            return None
        latest = max(begun, key=lambda stage: int(stage.stage_id))
        rows = _rows(f"{address}/api/v1/applications/{application}/stages/{latest.stage_id}") if address else None
        return WorkSeen(latest.num_completed_tasks, latest.num_tasks, rows, latest.num_bytes_read)

    return look


def _rows(stage: str) -> int | None:
    """Rows read in all attempts of a stage, from Spark's UI; None if the UI does not answer."""
    try:
        with _OPENER.open(f"{stage}?details=false", timeout=_PATIENCE_SECONDS) as answer:
            attempts = json.load(answer)
        return sum(int(one["inputRecords"]) + int(one["shuffleReadRecords"]) for one in attempts)
    except (URLError, OSError, ValueError, KeyError, TypeError):
        return None
