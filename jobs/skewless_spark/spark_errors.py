"""One sentence for whatever ended a step, be it ours or wrapped in a page of Java."""

from __future__ import annotations

import re

from skewless.errors import SkewlessError

#: The last line of a Python worker's traceback, when one of our own errors was raised there.
_OURS = re.compile(r"skewless\.errors\.(\w+): (.+)")


def exit_code_of(err: BaseException) -> int:
    """0 good, 2 bad spec or input, 3 data quality failed, 1 anything else."""
    return err.exit_code if isinstance(err, SkewlessError) else 1


def sentence_for(err: BaseException) -> str:
    """What went wrong, without a stack trace."""
    if isinstance(err, SkewlessError):
        return str(err)
    text = str(err)
    ours = _OURS.findall(text)
    if ours:
        return str(ours[-1][1])
    first = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return f"{type(err).__name__}: {first[:400]}"
