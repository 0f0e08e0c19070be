"""The verdict on a result."""

from __future__ import annotations

from typing import Any, Self

from pydantic import model_validator

from skewless.document import Count, Document, Frozen, unmet
from skewless.documents.ledger import Ledger


class Check(Frozen):
    """One expectation's verdict.

    Attributes:
        subject: "ledger" or "result".
        expectation: its type, like ``expect_column_values_to_not_be_null``.
        column: the column it is about; empty for the whole table.
        success: whether it held.
        observed: what was observed, as text; "" where nothing is observed but failures.
        sentence: name and numbers in one line.
    """

    subject: str
    expectation: str
    column: str
    success: bool
    observed: str
    sentence: str


class QualityReport(Document):
    """All checks of a run, with the ledger they are about.

    Attributes:
        success: whether every check held; a report that says otherwise than its checks is refused.
        keys: rows of the result.
        checks: in the order they were run.
        ledger: the run's ledger.
    """

    success: bool
    keys: Count
    checks: tuple[Check, ...]
    ledger: Ledger

    @model_validator(mode="before")
    @classmethod
    def _without_data_docs(cls, given: Any) -> Any:
        """Reports of earlier releases name pages of Great Expectations, which nobody reads any more."""
        return (
            {name: value for name, value in given.items() if name != "data_docs"} if isinstance(given, dict) else given
        )

    @model_validator(mode="after")
    def _verdict_of_its_checks(self) -> Self:
        """A result is published by ``success`` alone."""
        failed = sum(not check.success for check in self.checks)
        if self.success != (not failed):
            raise unmet(f"a verdict that follows from its checks, of which {failed} failed", f"success: {self.success}")
        return self
