"""The progress of a run, as a command shows it."""

from __future__ import annotations

import threading
from typing import Self

from pyspark.sql import SparkSession
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from skewless.documents.decision import Decision
from skewless.documents.stage_report import StageReport

_POLL_SECONDS = 0.25


class RunProgress:
    """A progress line that follows Spark's tasks, and a permanent line for each finished stage."""

    def __init__(self, console: Console) -> None:
        self._console = console
        columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
        self._progress = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._bar = self._progress.add_task("starting Spark", total=None)
        self._over = threading.Event()
        self._poller: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._poller:
            self._poller.join()
        self._progress.stop()

    def follow(self, spark: SparkSession) -> None:
        """Follow the session's Spark tasks from now on."""
        if self._console.is_terminal:
            self._poller = threading.Thread(target=self._poll, args=(spark,), daemon=True)
            self._poller.start()

    def step(self, name: str) -> None:
        """Show that a step begins."""
        self._progress.update(self._bar, description=name, completed=0, total=None)

    def stage_done(self, report: StageReport, decision: Decision) -> None:
        """Print a line for a stage, and one for the decision after it."""
        if self._console.is_terminal:
            self._progress.print(
                f"stage {report.stage}: {report.processed_rows:,} rows processed, {report.backlog_rows:,} left over, "
                f"{report.forwarded_rows:,} forwarded, max/mean {report.balance_words}\n  {decision.sentence}",
                markup=False,
            )

    def _poll(self, spark: SparkSession) -> None:
        tracker = spark.sparkContext.statusTracker()
        while not self._over.wait(_POLL_SECONDS):
            infos = [info for stage in tracker.getActiveStageIds() if (info := tracker.getStageInfo(stage))]
            if infos:
                done, total = sum(info.numCompletedTasks for info in infos), sum(info.numTasks for info in infos)
                self._progress.update(self._bar, completed=done, total=total)
