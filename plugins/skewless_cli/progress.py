"""What commands that compute tell people: the progress of a run, and what ``skewless restate`` finds and does."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, Self

from pyspark.sql import SparkSession
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from skewless.documents.decision import Decision
from skewless.documents.stage_report import StageReport
from skewless.run.directory import RunDirectory
from skewless.run.publication.records import Publication
from skewless.spec.part import Part
from skewless.standing.changes import PartReading
from skewless_cli import run_summary, say
from skewless_spark.prepare.restating import Restatement, StaleResult

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


class RestateView:
    """Prints lines as it is told facts, and collects them in ``told``, the object of ``skewless restate --json``."""

    def __init__(self, console: Console, *, dry_run: bool) -> None:
        self.console, self.dry_run = console, dry_run
        self.told: dict[str, Any] = {}

    def found(self, found: Restatement, reads: Mapping[Part, tuple[PartReading, ...]]) -> None:
        """Tell what is to be computed, why, and what that reads."""
        results = {}
        for one in found.stale:
            self._say(f"{one.part}: its result is not up to date")
            for name, reasons in one.reasons.items():
                for reason in reasons:
                    self._say(f"  {name}: {reason}" if name else f"  {reason}")
            for reading in reads.get(one.part, ()):
                self._say(f"  reads {reading.sentence}")
            if one.part in reads and not reads[one.part]:
                self._say("  reads no rows: states of all that it needs are kept, or are by then")
            results[one.part.name] = {
                "part": one.part.name,
                "reasons": {name: list(reasons) for name, reasons in one.reasons.items()},
                "reads": [reading._asdict() for reading in reads.get(one.part, ())],
                "restated": False,
            }
        for part in found.without_window:
            self._say(f"{part}: its result was made without a window, and is left alone")
        self._say(f"{len(found.stale):,} results to compute, {found.up_to_date:,} up to date")
        self.told = {
            "dry_run": self.dry_run,
            "up_to_date": found.up_to_date,
            "without_window": [part.name for part in found.without_window],
            "results": list(results.values()),
        }

    def restated(self, one: StaleResult, run: RunDirectory, published: Publication) -> None:
        """Tell that a result was computed again."""
        rows, over = run_summary.rows_read(run), published.superseded
        what = f"superseded by {over.by.run}" if over else f"published at {published.path}"
        self._say(f"{one.part}: {rows:,} rows read; {what}")
        told = self._of(one.part)
        told |= {
            "restated": True,
            "run_dir": str(run),
            "rows_read": rows,
            "published_path": None if over else published.path,
            "superseded_by": over.model_dump(mode="json") if over else None,
        }

    def left(self, part: Part, why: str) -> None:
        """Tell that a result stays as it is."""
        self._say(f"{part}: left as it was: {why}")
        self._of(part)["left"] = why

    def _of(self, part: Part) -> dict[str, Any]:
        return next(result for result in self.told["results"] if result["part"] == part.name)

    def _say(self, line: str) -> None:
        say(self.console, line)
