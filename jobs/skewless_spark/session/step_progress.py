"""The progress of a step, as lines in its log."""

from __future__ import annotations

import sys
import threading
from types import TracebackType
from typing import Self

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from skewless.run.directory import RunDirectory, stage_step
from skewless_spark.session.session import session_in_jvm

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
