"""One sentence for the error that ended a step, whether it is our own or wrapped in a Java stack trace."""

import re
from typing import Any
from urllib.parse import unquote

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark.errors import PythonException

from skewless import errors
from skewless.errors import OF_FILES, SkewlessError, explained, first_line, without_secrets

#: The last line of a Python worker's traceback, when one of our own errors was raised there.
_OURS = re.compile(r"skewless\.errors\.(\w+): (.+)")

_JVM_GONE = "Answer from Java side is empty"
#: Spark's addition to a message of ours that was raised in the JVM.
_STATE = re.compile(r"\s*SQLSTATE: \w+.*$")


def exit_code_of(err: BaseException) -> int:
    """The exit code for an error, as of ``SkewlessError``."""
    known = explained_error(err)
    return known.exit_code if known else 1


def is_unforeseen(err: BaseException) -> bool:
    """Whether the stack trace is wanted beside the sentence."""
    return explained_error(err) is None


def sentence_for(err: BaseException) -> str:
    """One sentence that says what went wrong, without a stack trace, and without the passwords of URLs."""
    return without_secrets(str(explained_error(err) or _plainly(err)))


def explained_error(err: BaseException) -> SkewlessError | None:
    """The error of ours that an error is, or tells of; None if nobody foresaw it."""
    if isinstance(err, SkewlessError):
        return err
    ours = _OURS.findall(_text(err))
    if ours:
        ended: SkewlessError = getattr(errors, ours[-1][0], SkewlessError).saying("", "")
        ended.args = (_STATE.sub("", ours[-1][1]),)
        return ended
    return explained(_messages(err), unquote)  # Spark's paths are URLs


def of_a_file(err: BaseException) -> bool:
    """Whether a file that was read is damaged, or is not there."""
    if isinstance(err, Py4JJavaError) and not _jvm_gone(err):
        known = explained_error(err)
        return known is not None and known.hint in OF_FILES
    return isinstance(err, errors.RunDirectoryError)


def _messages(err: BaseException) -> list[str]:
    if _jvm_gone(err):
        return [_JVM_GONE]
    if isinstance(err, Py4JJavaError):
        return _told_by(err.java_exception)
    return f"{type(err).__name__}: {_text(err)}".splitlines()


def _text(err: BaseException) -> str:
    """The message of an exception. A Java exception asks the JVM for it, which may have ended since."""
    try:
        return str(err)
    except (Py4JError, OSError):
        return _JVM_GONE


def _jvm_gone(err: BaseException | None) -> bool:
    """Whether the JVM ended: the error, or one of the errors before it, says so."""
    while err is not None:
        if isinstance(err, Py4JNetworkError) or _JVM_GONE in _text(err):
            return True
        err = err.__context__
    return False


def _plainly(err: BaseException) -> str:
    if isinstance(err, Py4JJavaError):
        return first_line(_told_by(err.java_exception)[-1])
    if isinstance(err, PythonException):
        # A worker's traceback, whose last line says what happened.
        lines = [line.strip() for line in str(err).splitlines() if line.strip()]
        return f"in a Python worker: {lines[-1][:400]}" if lines else "in a Python worker"
    return f"{type(err).__name__}: {first_line(str(err))}"


def _told_by(exception: Any) -> list[str]:
    """The messages of an exception, of those suppressed by it, and of their causes, each once."""
    told: dict[str, None] = {}
    waiting = [exception]
    while waiting:
        one = waiting.pop(0)
        text = str(one.toString())
        if text in told:  # they may name each other as their cause
            continue
        told[text] = None
        waiting += [further for further in (*one.getSuppressed(), one.getCause()) if further is not None]
    return list(told)
