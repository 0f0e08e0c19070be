"""What an expectation asks and finds, as people say it; the document's own words are in the JSON API."""

from __future__ import annotations

import re

_NUMBER = r"-?\d+(?:\.\d+)?"
#: What an expectation of a number is asked with.
_LIMITS = re.compile(
    rf"value=(?P<value>{_NUMBER})|(?=m)(?:min_value=(?P<low>{_NUMBER}))?(?:(?:^|, )max_value=(?P<high>{_NUMBER}))?"
)
#: Where nothing was required.
_NOTHING = "\N{EN DASH}"


def expectation_words(name: str) -> str:
    """What an expectation expects, as words: ``expect_column_values_to_not_be_null`` is ``values not null``."""
    words = name.removeprefix("expect_")
    for kind in ("column_", "table_"):
        words = words.removeprefix(kind)
    return words.replace("_to_", "_", 1).replace("_be_", "_", 1).replace("_", " ")


def required_words(asked: str) -> str:
    """What was required in numbers, as people say it; anything else as it was asked."""
    found = _LIMITS.fullmatch(asked)
    if not found:
        return asked or _NOTHING
    low, high = found["low"], found["high"] or found["value"]
    if found["value"] or low == high:
        return f"exactly {_thousands(high)}"
    if low and high:
        return f"{_thousands(low)} to {_thousands(high)}"
    return f"at least {_thousands(low)}" if low else f"at most {_thousands(high)}"


def _thousands(number: str) -> str:
    return f"{int(number):,}" if number.lstrip("-").isdecimal() else number


def observed_words(found: str) -> str:
    """What was observed, without saying so: the column of the table does."""
    return found.removeprefix("observed ")
