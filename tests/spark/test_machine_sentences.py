"""What a step says when the machine fails it."""

from __future__ import annotations

import errno

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import PythonException

from skewless_spark.session.spark_errors import sentence_for

FULL = "the step: expected room for what it writes, but got no space left on device; make room, and try again."
GONE = "Spark: expected an answer of its JVM, but got none, as it has ended; see its log above, and try again."
DIED = (
    "the step: expected Python workers that live until their task ends, but got one that was killed or crashed; "
    "try again, with more memory if the kernel killed it for that."
)


MEMORY = (
    "the step: expected memory for what it holds at a time, but got less; give its Spark more "
    "(spark.driver.memory, spark.executor.memory), or smaller values."
)
OUTGROWN = (
    "the step: expected values that Spark's buffers can hold, but got one, or a row of several, that outgrew them; "
    "look for texts of hundreds of megabytes among its columns, and leave them out."
)
RAISED = (
    "[USER_RAISED_EXCEPTION] skewless.errors.InputError: key column 'k': expected values of at most 9 bytes, but got "
    "one of 10 bytes; group by a part. SQLSTATE: P0001]\n\tat org.apache.spark.sql"
)


class _OfAJvmThatEnded(Exception):  # noqa: N818 - as py4j's are
    def __str__(self) -> str:
        raise ConnectionRefusedError(errno.ECONNREFUSED, "refused")


def _put_in_order_after(first: Exception, then: Exception) -> Exception:
    then.__context__ = first
    return then


@pytest.mark.parametrize(
    ("err", "sentence"),
    [
        pytest.param(OSError(errno.ENOSPC, "No space left on device", "a"), FULL, id="a disk that is full"),
        pytest.param(
            Py4JNetworkError("Answer from Java side is empty"), GONE, id="a JVM that ended while it was asked"
        ),
        pytest.param(_OfAJvmThatEnded("boom"), GONE, id="an error that nobody is there any more to tell of"),
        pytest.param(Py4JError("Answer from Java side is empty"), GONE, id="a JVM that ended before"),
        pytest.param(
            _put_in_order_after(
                Py4JNetworkError("Answer from Java side is empty"),
                ConnectionRefusedError(errno.ECONNREFUSED, "refused"),
            ),
            GONE,
            id="a JVM that is not there to be put in order",
        ),
        pytest.param(
            PythonException(
                "job aborted\norg.apache.spark.SparkException: Python worker exited unexpectedly (crashed): EOF reached"
            ),
            DIED,
            id="a worker that was killed",
        ),
        pytest.param(
            PythonException("job aborted\njava.lang.OutOfMemoryError: Java heap space"),
            MEMORY,
            id="a heap that is full",
        ),
        pytest.param(MemoryError(), MEMORY, id="a process that has no memory"),
        pytest.param(
            PythonException("Cannot reserve additional contiguous bytes in the vectorized reader (requested -1 bytes)"),
            OUTGROWN,
            id="a value that is too large for a buffer",
        ),
        pytest.param(
            PythonException(RAISED),
            "key column 'k': expected values of at most 9 bytes, but got one of 10 bytes; group by a part.",
            id="an error of ours that the JVM raised",
        ),
    ],
)
def test_what_the_machine_did_is_told_in_one_sentence(err: Exception, sentence: str) -> None:
    assert sentence_for(err) == sentence
