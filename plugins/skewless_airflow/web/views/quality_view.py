"""The quality report of a run, check by check, with the history of each check."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from skewless.documents.ledger import Ledger
from skewless.documents.nights import Band
from skewless.documents.quality import FailingKey
from skewless.run.directory import QUALITY_STEP, RunDirectory
from skewless_airflow.web.run_folders import kept_by
from skewless_airflow.web.views.stage_view import whole_job

_NUMBER = re.compile(r"-?[\d,]+(?:\.\d+)?(?:e[+-]?\d+)?")
_UNEXPECTED = re.compile(r"([\d,]+) of [\d,]+ values unexpected")


@dataclass(frozen=True)
class CheckView:
    """One expectation.

    Attributes:
        own: whether it is one of the spec's, and not one that every run is held to.
        turn: its number among equal ones: a spec may have the same expectation of the same column twice.
        keys: some of the keys that fail, with what was found in them.
    """

    name: str
    own: bool
    subject: str
    expectation: str
    column: str
    turn: int
    success: bool
    required: str
    observed: str
    found: str
    keys: tuple[FailingKey, ...] = ()
    verdict: str = "passed"

    @property
    def identity(self) -> tuple[str, str, str, int]:
        """What identifies it in other runs, where required numbers may differ because they follow from the input."""
        return (self.subject, self.expectation, self.column, self.turn)


@dataclass(frozen=True)
class QualityView:
    """The committed quality report.

    Attributes:
        measured: of a run with a window, what was measured of its parts, and fails nothing.
        sentence: how many checks failed, and what each found; "" if none did.
        bands: figures beside those of the nights around.
        told: how many of them are as usual, and which are not.
        quarantine: how many keys are left out of the published result; "" if none is.
    """

    success: bool
    keys: int
    held: int
    checks: tuple[CheckView, ...]
    ledger: Ledger
    measured: tuple[str, ...] = ()
    sentence: str = ""
    bands: tuple[Band, ...] = ()
    told: tuple[str, ...] = ()
    quarantine: str = ""

    @property
    def sections(self) -> list[tuple[str, list[CheckView]]]:
        """Titles with their checks: those that failed, warned or quarantine; all others by who asks for them."""
        held = [check for check in self.checks if check.success]
        titles = {
            "Failed checks": list(self.failed),
            "Warnings and quarantine": [c for c in self.checks if c.verdict in {"warned", "quarantined"}],
            "Checks of this job's spec": [check for check in held if check.own],
            "Built-in checks of the result": [c for c in held if not c.own and c.subject != "ledger"],
            "Built-in checks of the ledger": [c for c in held if not c.own and c.subject == "ledger"],
        }
        return [(title, some) for title, some in titles.items() if some]

    @property
    def failed(self) -> tuple[CheckView, ...]:
        """The checks that failed."""
        return tuple(check for check in self.checks if check.verdict == "failed")


@dataclass(frozen=True)
class Mark:
    """A check in an earlier run; ``success`` is None if that run had no such check.

    Attributes:
        value: what was observed, or how many values were unexpected; None where it is no number.
    """

    run: str
    date: str
    success: bool | None
    found: str
    value: float | None = None


@dataclass(frozen=True)
class ObservedLine:
    """What a check observed over runs, as a line in a box of ten units for each run and 20 in height.

    Attributes:
        points: as SVG has them; a run without a value has none.
        low, high: the least and the most that was observed, in words.
        words: the line for a reader who does not see it.
    """

    points: str
    low: str
    high: str
    words: str


def observed_line(marks: Sequence[Mark]) -> ObservedLine | None:
    """The line of a check over runs; None with fewer than two values."""
    known = [(place, mark, mark.value) for place, mark in enumerate(marks) if mark.value is not None]
    if len(known) < 2:
        return None
    low, high = min(value for *_, value in known), max(value for *_, value in known)
    span = high - low or 1.0
    points = " ".join(f"{10 * place + 5},{18 - 16 * (value - low) / span:.1f}" for place, _, value in known)
    (_, first, began), (_, last, ended) = known[0], known[-1]
    words = (
        f"observed {began:,g} in {first.date or first.run}, {ended:,g} in {last.date or last.run}; "
        f"lowest {low:,g}, highest {high:,g}"
    )
    return ObservedLine(points, f"{low:,g}", f"{high:,g}", words)


@dataclass(frozen=True)
class BandLine:
    """A figure over the latest days, each by its newest run, in a box as ``ObservedLine`` has it.

    Attributes:
        band: the corners of the area between the bands' ends, as SVG has them.
        own: where the run's own point is.
        words: the lines for a reader who does not see them.
    """

    band: str
    points: str
    own: tuple[float, float]
    days: int
    words: str


def band_line(own: Band, day: str, runs: Sequence[tuple[str, str, QualityView | None]]) -> BandLine:
    """A figure of a run of a day, and its bands, among those of other days."""
    found = {
        other: band
        for _, other, quality in runs
        if quality is not None
        for band in quality.bands
        if band.figure == own.figure
    }
    found[day] = own
    days = sorted(found)
    ends = [end for band in found.values() for end in (band.low, band.high, band.value)]
    low, span = min(ends), max(ends) - min(ends) or 1.0
    at = {name: 10 * place + 5 for place, name in enumerate(days)}

    def point(name: str, value: float) -> str:
        return f"{at[name]},{18 - 16 * (value - low) / span:.1f}"

    above, below = ([point(name, end) for name, end in of] for of in (
        [(name, found[name].high) for name in days], [(name, found[name].low) for name in reversed(days)]
    ))  # fmt: skip
    return BandLine(
        band=" ".join([*above, *below]),
        points=" ".join(point(name, found[name].value) for name in days),
        own=(at[day], round(18 - 16 * (own.value - low) / span, 1)),
        days=len(days),
        words=f"{own.sentence}; {len(days)} days from {days[0]} to {days[-1]}",
    )


def histories(checks: Sequence[CheckView], runs: Sequence[tuple[str, str, QualityView | None]]) -> list[list[Mark]]:
    """For each check its outcomes over runs."""
    found: list[list[Mark]] = [[] for _ in checks]
    for name, day, quality in runs:
        known = {check.identity: check for check in quality.checks} if quality else {}
        for marks, check in zip(found, checks, strict=True):
            then = known.get(check.identity)
            marks.append(
                Mark(name, day, then.success, then.found, _value(then))
                if then
                else Mark(name, day, None, "not checked")
            )
    return found


def _value(check: CheckView) -> float | None:
    counted = _UNEXPECTED.match(check.found)
    text = check.observed or (counted[1] if counted else "")
    return float(text.replace(",", "")) if _NUMBER.fullmatch(text) else None


@kept_by(f"{QUALITY_STEP}/COMMIT.json")
def read_quality(run: RunDirectory) -> QualityView:
    """The quality report, if one was committed."""
    report = run.quality()
    if report is None:  # cannot happen: its commit was there a moment ago, and commits stay
        raise FileNotFoundError(str(run))
    own = len(whole_job(run).spec.quality.expectations)
    turns: dict[tuple[str, str, str], int] = {}
    checks = []
    for place, (name, check) in enumerate(report.named(own), start=own - len(report.checks)):
        kind = (check.subject, check.expectation, check.column)
        turns[kind] = turns.get(kind, 0) + 1
        checks.append(
            CheckView(
                name,
                place >= 0,
                *kind,
                turns[kind],
                check.success,
                check.required,
                check.observed,
                check.found,
                check.keys,
                check.verdict,
            )
        )
    return QualityView(
        success=report.success,
        keys=report.keys,
        held=sum(check.success for check in checks),
        checks=tuple(checks),
        ledger=report.ledger,
        measured=report.window.sentences,
        sentence="" if report.success else ": ".join(report.failed_words(own)),
        bands=report.bands.checks if report.bands else (),
        told=report.bands.sentences if report.bands else (),
        quarantine=report.quarantine.sentence if report.quarantine and report.quarantine.keys else "",
    )
