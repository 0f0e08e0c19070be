"""What can go wrong, in one sentence each: where, what was required, what came, what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import ClassVar


class SkewlessError(Exception):
    """The root of everything Skewless raises on purpose.

    ``exit_code`` is what ``skewless`` ends with: 2 bad spec or input, 3 data quality
    failed, 1 anything else.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, where: str, required: str, came: str, hint: str = "") -> None:
        self.where, self.required, self.came, self.hint = where, required, came, hint
        sentence = f"{where}: required {required}, but came {came}"
        super().__init__(f"{sentence}; {hint}." if hint else f"{sentence}.")


class SpecError(SkewlessError):
    """The job spec, or an override of it, does not say something that can be run."""

    exit_code = 2


class InputError(SkewlessError):
    """The input of the job is missing or is not what the spec says it is."""

    exit_code = 2


class DocumentError(SkewlessError):
    """A document of a run directory cannot be read as what it should be."""


class RunDirectoryError(SkewlessError):
    """A run directory is used for something that it is not."""


class LostRaceError(SkewlessError):
    """Another attempt of the same step committed first; this one's files do not count."""


class LedgerError(SkewlessError):
    """Rows were lost or counted twice."""


class PlanError(SkewlessError):
    """A routing plan that would be unsafe or inconsistent was refused."""


class AggregateError(SkewlessError):
    """An aggregate broke its contract while it ran."""


class MapError(SkewlessError):
    """A mapper broke its contract while it ran."""


class UnreachableError(SkewlessError):
    """Spark, or what it runs on, does not answer."""


class QualityError(SkewlessError):
    """The result did not meet its expectations; nothing was published."""

    exit_code = 3


def nearest(word: str, known: Iterable[str]) -> str:
    """A hint that names the nearest known word, or lists all of them.

    >>> nearest("polcy", ["policy", "waves"])
    "did you mean 'policy'"
    """
    choices = sorted(known)
    close = difflib.get_close_matches(word, choices, n=1, cutoff=0.6)
    if close:
        return f"did you mean {close[0]!r}"
    return "known are " + ", ".join(repr(choice) for choice in choices)
