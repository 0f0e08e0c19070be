"""One sentence for whatever ended a step, be it ours or wrapped in a page of Java."""

from __future__ import annotations

import re

from py4j.protocol import Py4JJavaError
from pyspark.errors import PythonException

from skewless import errors
from skewless.errors import SkewlessError

#: The last line of a Python worker's traceback, when one of our own errors was raised there.
_OURS = re.compile(r"skewless\.errors\.(\w+): (.+)")

#: A worker that a function of ours was sent to.
_NO_CODE = re.compile(r"No module named 'skewless(_spark)?['.]")


def exit_code_of(err: BaseException) -> int:
    """0 good, 2 bad spec or input, 3 data quality failed, 1 anything else."""
    if isinstance(err, SkewlessError):
        return err.exit_code
    ours = _OURS.findall(str(err))
    kind = getattr(errors, ours[-1][0], SkewlessError) if ours else SkewlessError
    return int(kind.exit_code)


def sentence_for(err: BaseException) -> str:
    """What went wrong, without a stack trace."""
    if isinstance(err, SkewlessError):
        return str(err)
    ours = _OURS.findall(str(err))
    if ours:
        return str(ours[-1][1])
    if _NO_CODE.search(str(err)):
        return (
            "Spark's Python workers: required this project's code, but came none; install it where they run, or have "
            "the connection send it (ship_code)."
        )
    if isinstance(err, Py4JJavaError):
        return _first_line(_root_cause(err))
    if isinstance(err, PythonException):
        # A worker's traceback, whose last line says what happened.
        lines = [line.strip() for line in str(err).splitlines() if line.strip()]
        return f"in a Python worker: {lines[-1][:400]}" if lines else "in a Python worker"
    return f"{type(err).__name__}: {_first_line(str(err))}"


def _root_cause(err: Py4JJavaError) -> str:
    """The message of the exception that all others were wrapped around."""
    cause = err.java_exception
    while cause.getCause() is not None:
        cause = cause.getCause()
    return str(cause.toString())


def _first_line(text: str) -> str:
    return next((line.strip()[:400] for line in text.splitlines() if line.strip()), "")
