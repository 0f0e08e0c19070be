"""The verdict on a result, expectation by expectation, with what came before it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from skewless.documents.ledger import Ledger
from skewless.documents.quality import Check
from skewless.run.directory import QUALITY_STEP, RunDirectory
from skewless_airflow.web.run_folders import stamp


@dataclass(frozen=True)
class CheckView:
    """One expectation.

    Attributes:
        turn: which of its kind it is: the same expectation of the same column may be asked more than once.
        required: what it was asked with, as text.
        found: what came of it, as text.
    """

    subject: str
    expectation: str
    column: str
    turn: int
    success: bool
    required: str
    observed: str
    found: str

    @property
    def identity(self) -> tuple[str, str, str, int]:
        """What it is the same by in another run: required numbers may follow from the input."""
        return (self.subject, self.expectation, self.column, self.turn)


@dataclass(frozen=True)
class QualityView:
    """The committed verdict."""

    success: bool
    keys: int
    held: int
    checks: tuple[CheckView, ...]
    ledger: Ledger

    @property
    def failed(self) -> tuple[CheckView, ...]:
        """The expectations that did not hold."""
        return tuple(check for check in self.checks if not check.success)


@dataclass(frozen=True)
class Mark:
    """A verdict in an earlier run; ``success`` is None where the run did not ask."""

    run: str
    date: str
    success: bool | None
    found: str


def read_quality(run: RunDirectory) -> QualityView | None:
    """The verdict, if one was committed."""
    mark = stamp(run, f"{QUALITY_STEP}/COMMIT.json")
    return _view(run.path(""), mark) if mark else None


def histories(checks: Sequence[CheckView], runs: Sequence[tuple[str, str, QualityView | None]]) -> list[list[Mark]]:
    """For each check its verdicts over runs.

    Args:
        checks: of the run that is looked at.
        runs: name, day and verdict of each run, oldest first.
    """
    known = [
        (name, day, {check.identity: check for check in quality.checks} if quality else {})
        for name, day, quality in runs
    ]
    return [[_mark(name, day, found.get(check.identity)) for name, day, found in known] for check in checks]


def _mark(name: str, day: str, check: CheckView | None) -> Mark:
    return Mark(name, day, check.success if check else None, check.found if check else "not asked")


@lru_cache(maxsize=1024)
def _view(location: str, _mark: str) -> QualityView:
    report = RunDirectory(location).quality()
    if report is None:  # it was there a moment ago, and commits stay
        raise FileNotFoundError(location)
    turns: dict[tuple[str, str, str], int] = {}
    checks = []
    for check in report.checks:
        kind = (check.subject, check.expectation, check.column)
        turns[kind] = turns.get(kind, 0) + 1
        checks.append(_check(check, turns[kind]))
    return QualityView(
        success=report.success,
        keys=report.keys,
        held=sum(check.success for check in checks),
        checks=tuple(checks),
        ledger=report.ledger,
    )


def _check(check: Check, turn: int) -> CheckView:
    """Cut the sentence ``name(column, what=...): found`` at the first end of its brackets: values come after it."""
    asked, _, found = check.sentence.partition("): ")
    if not found:
        asked, _, found = check.sentence.partition(": ")
    required = asked.removeprefix(check.expectation).removeprefix("(").removeprefix(check.column).removeprefix(", ")
    return CheckView(
        check.subject, check.expectation, check.column, turn, check.success, required, check.observed, found
    )
