"""What can go wrong, each in one sentence: where, what was expected, what was found, what to do."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import ClassVar, Self

#: In a URL: a password after a user, a token in place of a user, and a parameter whose name is that of a secret.
#: What follows a colon and begins with a port is no password.
_PASSWORD = re.compile(r"(?<=://)([^\s'\"/@:]*:)(?!\d+(?:[/?#]|$))(?:(?!://)[^\s'\"])*@")
_TOKEN = re.compile(r"(?<=https://)[^\s'\"/@:]+@|(?<=http://)[^\s'\"/@:]+@")
_PARAMETER = re.compile(r"([?&;#]([\w.-]+)=)[^&;\s'\"]*")
#: What names a secret, by whole words, and by words that are part of others. A provider or a type of it is none.
_SECRET = re.compile(
    r"(?:\b(?:key|sas|pwd|pw|pass|passphrase|auth|authorization|bearer|sig|jwt)\b"
    r"|passw|secret|token|credential|signature|(?:access|account|private|api|shared)\.?key)"
    r"(?!(?:\.\w+){0,2}\.type\b|.*\.(?:providers?|manager|store|bits|policy|algorithm|class|enabled|config|file|path)$)"
)


def names_secret(name: str) -> bool:
    """Whether the value of a setting, a variable or a parameter of a URL is a secret, by the words of its name.

    >>> [names_secret(name) for name in ("fs.azure.sas.box.account", "DB_PWD", "accountKey", "spark.sql.keyword")]
    [True, True, True, False]
    """
    return _SECRET.search(re.sub(r"[_-]|(?<=[a-z])(?=[A-Z])", ".", name).lower()) is not None


def without_secrets(text: str) -> str:
    """A text with stars in place of the passwords and tokens in its URLs.

    >>> without_secrets("redis://me:pass@host/0 and sc://host:15002/;token=abc;user_id=me")
    'redis://me:***@host/0 and sc://host:15002/;token=***;user_id=me'
    """
    shown = _TOKEN.sub("***@", _PASSWORD.sub(r"\1***@", text))
    return _PARAMETER.sub(lambda match: f"{match[1]}***" if names_secret(match[2]) else match[0], shown)


class SkewlessError(Exception):
    """The root of all errors that Skewless raises: "WHERE: expected REQUIRED, but got CAME; HINT" is their sentence.

    Args:
        where: the file, field, step or service that the error is about.
        required: what was expected there, as a noun; empty if ``came`` says everything (see ``saying``).
        came: what was found there, as a noun.
        hint: what the reader can do, as an imperative; may be empty.

    Attributes:
        exit_code: with what the command ``skewless`` ends: 2 for a bad spec or input, 3 for failed data quality,
            4 for a machine that is to be mended first, and 1 for everything else, where a further try may help.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, where: str, required: str, came: str, hint: str = "") -> None:
        where, required, came, hint = map(without_secrets, (where, required, came, hint))
        self.where, self.required, self.came, self.hint = where, required, came, hint
        sentence = f"{where}: expected {required}, but got {came}" if required else f"{where}: {came}"
        sentence = f"{sentence}; {hint}" if hint else sentence
        super().__init__(sentence if hint.endswith("?") else f"{sentence}.")

    @classmethod
    def saying(cls, where: str, fact: str, hint: str = "") -> Self:
        """An error that compares nothing: "WHERE: FACT; HINT" is its sentence.

        >>> str(SpecError.saying("spec a.yaml, line 4", "a tab is not allowed in YAML", "indent with spaces"))
        'spec a.yaml, line 4: a tab is not allowed in YAML; indent with spaces.'
        """
        return cls(where, "", fact, hint)


class SpecError(SkewlessError):
    """The job spec, or an override of it, cannot be run as it is written."""

    exit_code = 2


class InputError(SkewlessError):
    """The input of the job is missing, or differs from what the spec says."""

    exit_code = 2


class DocumentError(SkewlessError):
    """A document of a run directory is damaged, of another version, or of another kind."""


class RunDirectoryError(SkewlessError):
    """A run directory cannot be used as it is: something is missing in it, or belongs to another run."""


class LostRaceError(SkewlessError):
    """Another attempt at the same step committed first; the files of this one do not count."""


class LedgerError(SkewlessError):
    """Rows were lost or counted twice."""


class PlanError(SkewlessError):
    """A routing plan, or the numbers for one, would be unsafe or inconsistent."""


class AggregateError(SkewlessError):
    """An aggregate broke its contract while it ran."""


class MapError(SkewlessError):
    """A mapper broke its contract while it ran."""


class UnreachableError(SkewlessError):
    """Spark, or a service that it needs, does not answer."""


class MachineError(SkewlessError):
    """What this machine or its storage does not give comes no sooner if one tries again: rights, Java, packages."""

    exit_code = 4


class QualityError(SkewlessError):
    """The result did not meet its expectations; nothing was published."""

    exit_code = 3


def counted(count: int, noun: str) -> str:
    """So many things, in words: 1 key, 2,016 keys."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def nearest(word: str, known: Iterable[str]) -> str:
    """A hint that names the nearest known word, or lists all of them.

    >>> nearest("polcy", ["policy", "waves"])
    "did you mean 'policy'?"
    """
    choices = sorted(known)
    close = difflib.get_close_matches(word, choices, n=1, cutoff=0.6)
    if close:
        return f"did you mean {close[0]!r}?"
    return "the known ones are " + ", ".join(repr(choice) for choice in choices)
