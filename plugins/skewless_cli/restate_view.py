"""What ``skewless restate`` tells: which results it computes again and why, what it reads, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console

from skewless.run.directory import RunDirectory
from skewless.run.publication.records import Publication
from skewless.spec.part import Part
from skewless.standing.changes import PartReading
from skewless_cli import run_summary
from skewless_spark.prepare.restating import Restatement, StaleResult


class RestateView:
    """Prints lines as it is told facts, and collects them for ``--json``.

    Attributes:
        console: where lines go.
        dry_run: whether nothing is computed.
        told: the object of ``skewless restate --json``; empty until something was found.
    """

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
        self.console.print(line, markup=False, highlight=False, soft_wrap=True)
