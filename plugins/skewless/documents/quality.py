"""The verdict on a result."""

from __future__ import annotations

import datetime as dt
from typing import Self

from pydantic import Field, model_validator

from skewless.document import Count, Document, Frozen, unmet
from skewless.documents.ledger import Ledger
from skewless.documents.window import NewestRow


class Check(Frozen):
    """One expectation's verdict.

    Attributes:
        subject: "ledger", "result", or "states": keys that were computed from all rows, too.
        expectation: its type, like ``expect_column_values_to_not_be_null``.
        observed: what was observed, as text; "" where nothing is observed but failures.
        sentence: name and numbers in one line.
    """

    subject: str
    expectation: str
    column: str
    success: bool
    observed: str
    sentence: str


class Freshness(Frozen):
    """How new a part is.

    Attributes:
        newest: when the newest of its files was modified, in UTC; None if the file system does not say.
        row: its newest row, if the spec names a time column and it is known.
    """

    part: str
    newest: dt.datetime | None = None
    row: NewestRow | None = None

    @property
    def sentences(self) -> tuple[str, ...]:
        """What is known, for people."""
        told = [f"newest file of {self.part}: modified {self.newest:%Y-%m-%d %H:%M:%S} UTC"] if self.newest else []
        if self.row and self.row.at:
            zone = " UTC" if self.row.at.tzinfo else ""
            told.append(f"newest row of {self.part} by {self.row.column}: {self.row.at:%Y-%m-%d %H:%M:%S}{zone}")
        return tuple(told)


class Volume(Frozen):
    """The rows of the run's own part beside those of earlier parts of the same weekday, and hour.

    The band is the median and three standard deviations to either side, inclusive. These are estimated by the median
    distance from the median, times 1.4826 as in a normal distribution, which one odd day does not move; and by the root
    of the median, as rows that come independently of each other vary, if that is more.
    """

    part: str
    rows: Count
    compared: dict[str, Count]
    median: float
    low: float
    high: float

    @property
    def usual(self) -> bool:
        """Whether the rows are within the band."""
        return self.low <= self.rows <= self.high


class LateRows(Frozen):
    """Rows, before a map, of files that came, or were replaced, in an older part that had states.

    Attributes:
        delay: how many parts it lies before the run's own one.
        ignored: whether they were left out, as the spec has ``late: ignore``.
    """

    part: str
    delay: int = Field(ge=1)
    rows: Count
    ignored: bool = False


class WindowQuality(Frozen):
    """What is measured of a run with a window, and fails nothing. What could not be measured is not in it.

    Attributes:
        freshness: of each part of which something is known.
        volume: of the run's own part; None with fewer than three earlier parts of its weekday.
        late: rows that came late, by the part they belong to.
    """

    freshness: tuple[Freshness, ...] = ()
    volume: Volume | None = None
    late: tuple[LateRows, ...] = ()

    @property
    def sentences(self) -> tuple[str, ...]:
        """What was measured, for people."""
        told = [sentence for one in self.freshness[-1:] for sentence in one.sentences]
        if (own := self.volume) is not None:
            warning = "" if own.usual else "WARNING: "
            told.append(
                f"{warning}{own.part} has {own.rows:,} rows; {len(own.compared)} earlier parts of its weekday: "
                f"median {own.median:,.0f}, usual from {own.low:,.0f} to {own.high:,.0f}"
            )
        for late in self.late:
            parts = f"{late.delay:,} {'part' if late.delay == 1 else 'parts'}"
            left_out = ", and were left out" if late.ignored else ""
            told.append(f"{late.rows:,} rows of {late.part} came late, by {parts}{left_out}")
        return tuple(told)


class QualityReport(Document):
    """All checks of a run, in the order they were run, with the ledger they are about.

    Attributes:
        success: whether every check held; a report that says otherwise than its checks is refused.
        keys: rows of the result.
        window: of a run with a window, what is measured of its parts.
    """

    success: bool
    keys: Count
    checks: tuple[Check, ...]
    ledger: Ledger
    window: WindowQuality | None = None

    @model_validator(mode="after")
    def _verdict_of_its_checks(self) -> Self:
        """A result is published by ``success`` alone."""
        failed = sum(not check.success for check in self.checks)
        if self.success != (not failed):
            raise unmet(f"a verdict that follows from its checks, of which {failed} failed", f"success: {self.success}")
        return self
