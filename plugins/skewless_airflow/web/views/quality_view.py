"""The quality report of a run, check by check, with the history of each check."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from skewless.documents.ledger import Ledger
from skewless.documents.nights import Band
from skewless.documents.quality import FailingKey, State
from skewless.run.directory import QUALITY_STEP, RunDirectory
from skewless_airflow.web.runs import kept_by, view_of
from skewless_airflow.web.views.job_view import whole_job


@dataclass(frozen=True)
class CheckView:
    """One expectation."""

    name: str
    own: bool
    """Whether it is one of the spec's, and not one that every run is held to."""
    subject: str
    expectation: str
    column: str
    turn: int
    """Its number among equal ones: a spec may have the same expectation of the same column twice."""
    success: bool
    required: str
    observed: str
    found: str
    keys: tuple[FailingKey, ...]
    verdict: str

    @property
    def identity(self) -> tuple[str, str, str, int]:
        """What identifies it in other runs, where required numbers may differ because they follow from the input."""
        return (self.subject, self.expectation, self.column, self.turn)


@dataclass(frozen=True)
class QualityView:
    """The committed quality report."""

    success: bool
    verdict: State
    keys: int
    held: int
    checks: tuple[CheckView, ...]
    ledger: Ledger
    sentence: str
    """How many checks failed, and what each found; "" if none did."""
    bands: tuple[Band, ...]
    told: tuple[str, ...]
    """How many figures are as usual, and which are not."""
    quarantine: str
    """How many keys are left out of the published result; "" if none is."""

    @property
    def sections(self) -> list[tuple[str, list[CheckView]]]:
        """Titles with their checks: those that failed, warned or quarantine; all others by who asks for them."""
        held = [check for check in self.checks if check.success]
        titles = {
            "Failed checks": [c for c in self.checks if c.verdict == "failed"],
            "Warnings and quarantine": [c for c in self.checks if c.verdict in {"warned", "quarantined"}],
            "Checks of this job's spec": [check for check in held if check.own],
            "Built-in checks of the result": [c for c in held if not c.own and c.subject != "ledger"],
            "Built-in checks of the ledger": [c for c in held if not c.own and c.subject == "ledger"],
        }
        return [(title, some) for title, some in titles.items() if some]


@dataclass(frozen=True)
class Mark:
    """A check in an earlier run; ``verdict`` is "" if that run had no such check."""

    run: str
    date: str
    verdict: str
    found: str


def histories(checks: Sequence[CheckView], runs: Sequence[tuple[str, str, QualityView | None]]) -> list[list[Mark]]:
    """For each check its outcomes over runs."""
    found: list[list[Mark]] = [[] for _ in checks]
    for name, day, quality in runs:
        known = {check.identity: check for check in quality.checks} if quality else {}
        for marks, check in zip(found, checks, strict=True):
            then = known.get(check.identity)
            marks.append(Mark(name, day, then.verdict, then.found) if then else Mark(name, day, "", "not checked"))
    return found


@kept_by(f"{QUALITY_STEP}/COMMIT.json")
def read_quality(run: RunDirectory) -> QualityView:
    """The quality report, if one was committed."""
    if (report := run.quality()) is None:  # retention has removed the run since
        raise FileNotFoundError(str(run))
    own = len(whole_job(run).spec.quality.expectations)
    checks, turns = [], Counter[tuple[str, str, str]]()
    for place, (name, check) in enumerate(report.named(own), start=own - len(report.checks)):
        turns[kind := (check.subject, check.expectation, check.column)] += 1
        checks.append(view_of(CheckView, check, name=name, own=place >= 0, turn=turns[kind]))
    return view_of(
        QualityView, report, held=sum(check.success for check in checks), checks=tuple(checks),
        sentence="" if report.success else ": ".join(report.failed_words(own)),
        bands=report.bands.checks if report.bands else (), told=report.bands.sentences if report.bands else (),
        quarantine=report.quarantine.sentence if report.quarantine and report.quarantine.keys else "",
    )  # fmt: skip
