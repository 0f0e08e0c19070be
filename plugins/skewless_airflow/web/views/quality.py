"""The quality report of a run, check by check, with the history of each check."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from skewless.documents.ledger import Ledger
from skewless.documents.quality import Check
from skewless.run.directory import QUALITY_STEP, RunDirectory
from skewless_airflow.web.run_folders import kept_by
from skewless_airflow.web.views.stage import whole_job

#: What the checks of every run say, whatever its spec: by subject, expectation and, for the ledger, its column.
_BUILT_IN = {
    ("ledger", "expect_column_sum_to_be_between", "not_admitted_rows"): "rows admitted = rows listed in the input",
    ("ledger", "expect_column_sum_to_be_between", "not_taken_in_rows"): "backlog of a stage = backlog of the next one",
    (
        "ledger", "expect_column_sum_to_be_between", "lost_in_stage_rows",
    ): "in each stage, rows admitted + backlog in = rows processed + backlog",
    ("ledger", "expect_column_sum_to_be_between", "not_processed_rows"): "rows processed = rows of the input",
    ("ledger", "expect_column_sum_to_be_between", "not_in_states_rows"): "rows in the states = rows processed",
    ("ledger", "expect_column_sum_to_be_between", "never_reduced_rows"): "no backlog after the last stage",
    ("ledger", "ledger_balances", ""): "the ledger balances",
    ("result", "expect_compound_columns_to_be_unique", ""): "each key occurs once",
    ("result", "expect_table_columns_to_match_set", ""): "the columns are those of the spec",
    ("result", "expect_table_row_count_to_equal", ""): "rows of the result = keys that were merged",
    ("result", "expect_table_row_count_to_be_between", ""): "no more keys than rows of the input",
    ("result", "expect_column_sum_to_be_between", ""): "{column} adds up to the rows of the input",
    ("result", "expect_column_values_to_not_be_null", ""): "every key has a value of {column}",
    ("result", "rule_of_the_table", ""): "each row is what the table asks for: {column}",
    ("states", "kept_states_are_those_of_all_rows", ""): "a sample of keys is what all rows of the window give",
    ("states", "expect_column_sum_to_be_between", ""): "none of them: {column}",
}  # fmt: skip


@dataclass(frozen=True)
class CheckView:
    """One expectation.

    Attributes:
        name: what it expects, in words.
        own: whether it is one of the spec's, and not one that every run is held to.
        turn: its number among equal ones: a spec may have the same expectation of the same column twice.
        required: the arguments, as text.
        found: the outcome, as text.
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

    @property
    def identity(self) -> tuple[str, str, str, int]:
        """What identifies it in other runs, where required numbers may differ because they follow from the input."""
        return (self.subject, self.expectation, self.column, self.turn)


@dataclass(frozen=True)
class QualityView:
    """The committed quality report.

    Attributes:
        measured: of a run with a window, what was measured of its parts, and fails nothing.
    """

    success: bool
    keys: int
    held: int
    checks: tuple[CheckView, ...]
    ledger: Ledger
    measured: tuple[str, ...] = ()

    @property
    def sections(self) -> list[tuple[str, list[CheckView]]]:
        """The checks by who asks for them and what they are about, with a title; those that failed first."""
        titles = {
            "Checks of this job's spec": [check for check in self.checks if check.own],
            "Built-in checks of the result": [c for c in self.checks if not c.own and c.subject != "ledger"],
            "Built-in checks of the ledger": [c for c in self.checks if not c.own and c.subject == "ledger"],
        }
        return [(title, sorted(some, key=lambda check: check.success)) for title, some in titles.items() if some]

    @property
    def failed(self) -> tuple[CheckView, ...]:
        """The checks that failed."""
        return tuple(check for check in self.checks if not check.success)


@dataclass(frozen=True)
class Mark:
    """A check in an earlier run; ``success`` is None if that run had no such check."""

    run: str
    date: str
    success: bool | None
    found: str


def histories(checks: Sequence[CheckView], runs: Sequence[tuple[str, str, QualityView | None]]) -> list[list[Mark]]:
    """For each check its outcomes over runs."""
    found: list[list[Mark]] = [[] for _ in checks]
    for name, day, quality in runs:
        known = {check.identity: check for check in quality.checks} if quality else {}
        for marks, check in zip(found, checks, strict=True):
            then = known.get(check.identity)
            marks.append(Mark(name, day, then.success, then.found) if then else Mark(name, day, None, "not checked"))
    return found


@kept_by(f"{QUALITY_STEP}/COMMIT.json")
def read_quality(run: RunDirectory) -> QualityView:
    """The quality report, if one was committed."""
    report = run.quality()
    if report is None:  # cannot happen: its commit was there a moment ago, and commits stay
        raise FileNotFoundError(str(run))
    # The spec's own expectations are the last ones of a report.
    first_own = len(report.checks) - len(whole_job(run).spec.quality.expectations)
    turns: dict[tuple[str, str, str], int] = {}
    checks = []
    for place, check in enumerate(report.checks):
        kind = (check.subject, check.expectation, check.column)
        turns[kind] = turns.get(kind, 0) + 1
        checks.append(_check(check, turns[kind], own=place >= first_own))
    return QualityView(
        success=report.success,
        keys=report.keys,
        held=sum(check.success for check in checks),
        checks=tuple(checks),
        ledger=report.ledger,
        measured=report.window.sentences if report.window else (),
    )


def _check(check: Check, turn: int, *, own: bool) -> CheckView:
    """Cut the sentence ``name(column, what=...): found`` at the first end of its brackets: values come after it."""
    asked, _, found = check.sentence.partition("): ")
    if not found:
        asked, _, found = check.sentence.partition(": ")
    required = asked.removeprefix(check.expectation).removeprefix("(").removeprefix(check.column).removeprefix(", ")
    column = check.column if check.subject == "ledger" else ""
    built_in = "" if own else _BUILT_IN[check.subject, check.expectation, column]
    name = own_words(check) if own else built_in.replace("{column}", check.column)
    return CheckView(
        name, own, check.subject, check.expectation, check.column, turn, check.success, required, check.observed, found
    )


def own_words(check: Check) -> str:
    """What an expectation of a spec expects: ``expect_column_values_to_not_be_null`` is ``values not null``."""
    words = check.expectation.removeprefix("expect_")
    for kind in ("column_", "table_"):
        words = words.removeprefix(kind)
    words = words.replace("_to_", "_", 1).replace("_be_", "_", 1).replace("_", " ")
    return f"{check.column}: {words}" if check.column else words
