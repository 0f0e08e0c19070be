"""How far a step is, as lines of its log."""

from __future__ import annotations

import sys
import threading
from types import TracebackType
from typing import Self

from pyspark.sql import SparkSession

from skewless.run.directory import RunDirectory, stage_step
from skewless_spark.session.connect import connected, ui_address
from skewless_spark.session.work_seen import SparkGoneError, WorkSeen, by_jvm, by_server

#: Lines of ours begin like that; all others are Spark's own words.
MARK = "skewless: "
#: With a poll that takes a moment, still more often than every ten seconds.
HEARTBEAT_SECONDS = 8.0


def say(words: str) -> None:
    """Write a line that is ours, at once: a pipe would keep it until it has many."""
    sys.stdout.write(f"{MARK}{words}\n")
    sys.stdout.flush()


def announce(spark: SparkSession) -> None:
    """Say which Spark application this is and where its UI answers."""
    if connected():
        ident, address = str(spark.conf.get("spark.app.id")), ui_address(spark)
    else:
        ident, address = str(spark.sparkContext.applicationId), spark.sparkContext.uiWebUrl or ""
    say(f"spark application {ident} at {address or 'no address'}")


def queued_rows(run: RunDirectory, stage: int) -> int | None:
    """Rows that a stage finds: its waves and the last stage's backlog; None where the listing does not count them."""
    job, plan = run.job(), run.plan(stage)
    if not job.counted:
        return None
    backlog = run.committed(stage_step(stage - 1)).counts.get("backlog", 0) if stage else 0
    return job.admitted_rows(plan.waves) + backlog


class StepProgress:
    """Says every few seconds how many tasks and rows of the running Spark stage are done.

    Args:
        spark: the session.
        step: its name, for the lines.
        queued: rows that the step has to process, where that is known.
        seconds: between two lines.
    """

    def __init__(
        self, spark: SparkSession, step: str, queued: int | None = None, seconds: float = HEARTBEAT_SECONDS
    ) -> None:
        self._look = by_server(spark) if connected() else by_jvm(spark)
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
        """How far the step is now."""
        seen = self._look()
        return f"{self._step}: {self._of(seen) if seen else 'between two Spark jobs'}"

    def _of(self, seen: WorkSeen) -> str:
        done = f"{seen.done:,} of {seen.tasks:,} tasks"
        if seen.rows is None:
            return f"{done}, {seen.bytes_read:,} bytes read"
        # What one Spark stage reads is what the step has queued; a later one of the step reads less.
        known = self._queued is not None and seen.rows <= self._queued
        return f"{done}, {seen.rows:,} of {self._queued:,} rows" if known else f"{done}, {seen.rows:,} rows read"

    def _tell(self) -> None:
        while not self._over.wait(self._seconds):
            try:
                say(self.line())
            except (SparkGoneError, OSError):  # the session is being stopped: the step says itself how it ended
                return
