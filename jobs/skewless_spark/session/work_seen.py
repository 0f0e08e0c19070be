"""What Spark is at, as a step can see it: from its own JVM, or from a server that it is connected to."""

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
#: A proxy of the house is not for a server beside us.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class WorkSeen(NamedTuple):
    """The Spark stage that runs; of several the latest.

    Attributes:
        done: tasks that have ended.
        tasks: all of them.
        rows: that were read so far, from the input or a shuffle; None where nobody tells.
        bytes_read: of the input so far.
    """

    done: int
    tasks: int
    rows: int | None
    bytes_read: int = 0


class SparkGoneError(Exception):
    """Nobody is there any more to be asked."""


Look = Callable[[], WorkSeen | None]


def by_jvm(spark: SparkSession) -> Look:
    """Look at the status store of the session's own JVM; the public tracker knows no rows."""
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
    """Keep what the server tells of this session's operations, and ask its UI, if that is known, for rows."""
    running: list[Any] = []

    def told(stages: Iterable[Any] | None, inflight_tasks: int, operation_id: str | None, done: bool) -> None:
        del inflight_tasks, operation_id
        running[:] = [] if done else [one for one in stages or () if not one.done]

    cast("Any", spark).registerProgressHandler(told)
    address, application = ui_address(spark), spark.conf.get("spark.app.id")

    def look() -> WorkSeen | None:
        # The server lists stages that still wait for others, too: they have begun no task.
        begun = [one for one in list(running) if one.num_completed_tasks or one.num_bytes_read] or list(running)
        if not begun:
            return None
        latest = max(begun, key=lambda stage: int(stage.stage_id))
        rows = _rows(f"{address}/api/v1/applications/{application}/stages/{latest.stage_id}") if address else None
        return WorkSeen(latest.num_completed_tasks, latest.num_tasks, rows, latest.num_bytes_read)

    return look


def _rows(stage: str) -> int | None:
    """Rows read in all attempts of a stage, as Spark's UI tells; None if it does not answer."""
    try:
        with _OPENER.open(f"{stage}?details=false", timeout=_PATIENCE_SECONDS) as answer:
            attempts = json.load(answer)
        return sum(int(one["inputRecords"]) + int(one["shuffleReadRecords"]) for one in attempts)
    except (URLError, OSError, ValueError, KeyError, TypeError):
        return None
