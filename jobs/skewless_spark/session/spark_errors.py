"""One sentence for the error that ended a step, whether it is our own or wrapped in a Java stack trace."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any
from urllib.parse import unquote

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark.errors import PythonException

from skewless import errors
from skewless.errors import InputError, SkewlessError, UnreachableError, without_secrets

#: The last line of a Python worker's traceback, when one of our own errors was raised there.
_OURS = re.compile(r"skewless\.errors\.(\w+): (.+)")

#: Messages of Hadoop's and Parquet's readers about bytes that differ from those that were written.
_DAMAGED = re.compile(r"Checksum error: |could not verify page integrity")
#: Spark's message about a file that cannot be read for any other reason.
_UNREADABLE = "[FAILED_READ_FILE.NO_HINT]"
#: Spark's message about a record of a text that is not what the spec declares, or a header that is another one.
_ODD_RECORD = re.compile(
    r"\[MALFORMED_RECORD_IN_PARSING[.\w]*\]|CSV header does not conform|Number of column in CSV header"
)
#: What readers say of a file that is whole, and that they have no means to read; what was expected, and what to do.
_BEYOND = (
    (
        re.compile(r"ClassNotFoundException: \S+Codec\b"), "a codec that this Spark has",
        "write the file with zstd or snappy, or give Spark the codec's jar",
    ),
    (
        re.compile(r"ParquetCryptoRuntimeException"), "columns that are not encrypted",
        "leave them out, or give Spark their keys",
    ),
)  # fmt: skip
#: Where these messages, or Spark's around them, name the file.
_DAMAGED_FILE = re.compile(r"(?:Checksum error:|reading file) (?:file:(?://)?)?(?P<path>/\S*?|\w+://\S*?)\.?(?:\s|$)")
#: py4j's message when the JVM does not answer any more.
_JVM_GONE = "Answer from Java side is empty"
#: The kernel's messages about a full disk.
_FULL = re.compile(r"No space left on device|Disk quota exceeded|File too large")
#: Messages about a full heap, and about a value too large for a buffer of Spark, Parquet or Arrow.
_NO_MEMORY = re.compile(r"OutOfMemoryError|UNABLE_TO_ACQUIRE_MEMORY|MemoryError|malloc of size \d+ failed")
_OUTGROWN = re.compile(
    r"Cannot grow BufferHolder|Cannot reserve additional contiguous bytes|exceeds size limitation|NegativeArraySize"
    r"|OversizedAllocationException|Size exceeds Integer\.MAX_VALUE|ArrowCapacityError|array cannot contain more than"
    r"|Memory required for vector|Requested array size exceeds VM limit|COLLECTION_SIZE_LIMIT_EXCEEDED"
)
#: Spark's addition to a message of ours that was raised in the JVM.
_STATE = re.compile(r"\s*SQLSTATE: \w+.*$")
#: Spark's code of an error of data, which comes out the same however often it is tried: class 22 of the SQL standard
#: (overflow, cast, division by zero, index out of range), and what ``raise_error`` says.
_OF_DATA = re.compile(r"SQLSTATE: (?:22\w{3}|P0001)\b|CSV header does not conform|Number of column in CSV header")
#: Messages about a dead Python worker: the kernel may have killed it for the memory it took.
_WORKER_DIED = re.compile(r"Python worker exited unexpectedly|Python worker failed to connect back")
#: The message of a worker that has not our code.
_NO_CODE = re.compile(r"No module named 'skewless(_spark)?['.]")


def exit_code_of(err: BaseException) -> int:
    """The exit code for an error: 2 bad spec or input, 3 failed data quality, 1 any other error."""
    if isinstance(err, SkewlessError):
        return err.exit_code
    ours = _OURS.findall(_text(err))
    if not ours and _OF_DATA.search(_text(err)):
        return InputError.exit_code
    kind = getattr(errors, ours[-1][0], SkewlessError) if ours else SkewlessError
    return int(kind.exit_code)


def sentence_for(err: BaseException) -> str:
    """One sentence that says what went wrong, without a stack trace, and without the passwords of URLs."""
    return without_secrets(_sentence(err))


def _sentence(err: BaseException) -> str:
    if isinstance(err, SkewlessError):
        return str(err)
    ours = _OURS.findall(_text(err))
    if ours:
        return _STATE.sub("", str(ours[-1][1]))
    if _NO_CODE.search(_text(err)):
        return "Spark's Python workers: expected this project's code, but got none; install it where they run."
    if _jvm_gone(err):
        return str(
            UnreachableError(
                "Spark", "an answer of its JVM", "none, as it has ended", "see its log above, and try again"
            )
        )
    if isinstance(err, Py4JJavaError):
        told = _told_by(err.java_exception)
    else:
        told = [type(err).__name__, *str(err).splitlines()]
    return _damaged(told) or _shortage(told) or _plainly(err)


def of_a_file(err: BaseException) -> bool:
    """Whether a file that was read is damaged, or is not there."""
    if isinstance(err, Py4JJavaError) and not _jvm_gone(err):
        return bool(_damaged(_told_by(err.java_exception)))
    return isinstance(err, errors.RunDirectoryError)


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


#: Messages about a machine with too little memory: what was expected, what came, what to do. The first match counts.
_SHORTAGES = (
    (
        _OUTGROWN, "values that Spark's buffers can hold", "one, or a row of several, that outgrew them",
        "look for texts of hundreds of megabytes among its columns, and leave them out",
    ),
    (
        _NO_MEMORY, "memory for what it holds at a time", "less",
        "give its Spark more (spark.driver.memory, spark.executor.memory), or smaller values",
    ),
    (
        _WORKER_DIED, "Python workers that live until their task ends", "one that was killed or crashed",
        "try again, with more memory if the kernel killed it for that",
    ),
)  # fmt: skip


def _shortage(told: Sequence[str]) -> str:
    full = next((found[0] for line in told if (found := _FULL.search(line))), "")
    if full:
        return str(SkewlessError("the step", "room for what it writes", full.lower(), "make room, and try again"))
    for sign, required, came, hint in _SHORTAGES:
        if any(map(sign.search, told)):
            return str(SkewlessError("the step", required, came, hint))
    return ""


def _plainly(err: BaseException) -> str:
    if isinstance(err, Py4JJavaError):
        return _first_line(_root_cause(err))
    if isinstance(err, PythonException):
        # A worker's traceback, whose last line says what happened.
        lines = [line.strip() for line in str(err).splitlines() if line.strip()]
        return f"in a Python worker: {lines[-1][:400]}" if lines else "in a Python worker"
    return f"{type(err).__name__}: {_first_line(str(err))}"


def _damaged(told: Sequence[str]) -> str:
    """One sentence if a file that was read is damaged; else empty.

    Args:
        told: the messages of the exception and its causes, the root cause last.
    """
    file = next((found["path"] for line in told if (found := _DAMAGED_FILE.search(line))), "a file")
    hint = "restore it from a copy"
    if any(map(_ODD_RECORD.search, told)):
        came = re.sub(r"^[\w.$]+: |\[[A-Z_.]+\] |\s*SQLSTATE.*", "", " ".join(told[-1].split()))[:300]
        hint = "nothing was committed; mend the file or the spec's input (columns, options)"
        return str(InputError(f"input file {unquote(file)}", "records as the spec declares them", came, hint))
    if any(map(_DAMAGED.search, told)):
        return str(SkewlessError(file, "the bytes that were written", "others, by its checksum", hint))
    for sign, required, advice in _BEYOND:
        found = next((found for line in told if (found := sign.search(line))), None)
        if found is not None and any(_UNREADABLE in line for line in told):
            return str(SkewlessError(file, required, found[0].rpartition(".")[2], advice))
    if any(_UNREADABLE in line for line in told):
        return str(SkewlessError(file, "bytes that can be read", _first_line(told[-1])[:200], hint))
    return ""


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


def _root_cause(err: Py4JJavaError) -> str:
    cause = err.java_exception
    while cause.getCause() is not None:
        cause = cause.getCause()
    return str(cause.toString())


def _first_line(text: str) -> str:
    return next((line.strip()[:400] for line in text.splitlines() if line.strip()), "")
