"""What a step says, also when the machine fails it, where it says it, and who may listen to its Spark."""

import errno
import io
import re
import sys
from pathlib import Path

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import PySparkRuntimeError, PythonException
from pyspark.sql import SparkSession

from skewless.errors import InputError, explained_here
from skewless_airflow.operators import HOPELESS
from skewless_spark.entries.pipeline import STEPS, main
from skewless_spark.session.spark_errors import exit_code_of, is_unforeseen, sentence_for
from skewless_spark.session.versions import here


def test_a_log_that_lacks_a_character_is_no_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii"))
    monkeypatch.setitem(STEPS, "merge", (lambda *_: "caf\u00e9 \u2581: done", {}))
    main(["merge", "--run-dir", str(tmp_path / "run")])
    sys.stdout.flush()
    assert written.getvalue() == b"skewless: caf\\xe9 \\u2581: done\n"


def test_the_sentence_for_an_error_of_a_library_has_no_password() -> None:
    said = sentence_for(OSError("cannot reach redis://me:s3cr3t@leases/0 or sc://host/;token=s3cr3t"))
    assert said == "OSError: cannot reach redis://me:***@leases/0 or sc://host/;token=***"


@pytest.mark.parametrize(
    "column",
    ["cast(word as int)", "1 / (id - id)", "cast(id + 300 as tinyint)", "raise_error('no')", "array(1)[id + 1]"],
)
def test_an_error_of_data_that_spark_raises_is_not_tried_again(
    spark: SparkSession, tmp_path: Path, column: str
) -> None:
    if here() < (4, 0) and "raise_error" in column:
        pytest.skip("Spark 3.5 gives it no name")
    rows = spark.range(2).selectExpr("id", "'x' || id as word").selectExpr(f"{column} as value")
    for act in (rows.collect, lambda: rows.selectExpr("cast(value as string)").write.parquet(str(tmp_path / "out"))):
        with pytest.raises(Exception, match=r"SQLSTATE|aborted|TASK_WRITE_FAILED") as raised:
            act()
        assert exit_code_of(raised.value) == InputError.exit_code
    with pytest.raises(Exception, match="UNRESOLVED_COLUMN") as raised:
        rows.selectExpr("missing")
    assert exit_code_of(raised.value) == 1


def test_a_driver_of_this_machine_talks_to_nobody_without_its_secret(spark: SparkSession) -> None:
    conf = spark.sparkContext.getConf()
    assert conf.get("spark.master") == "local[2]"
    assert conf.get("spark.authenticate") == "true"


def test_no_module_is_started_with_the_current_folder_on_its_path() -> None:
    """A file ``json.py`` there would be imported in place of Python's own."""
    started = [
        file.name
        for folder in ("plugins", "jobs")
        for file in (Path(__file__).parents[2] / folder).rglob("*.py")
        if re.search(r"sys\.executable,\s+\"-m\"", file.read_text())
    ]
    assert not started


FULL = "the step: expected room for what it writes, but got no space left on device; make room, and try again."
GONE = "Spark: expected an answer of its JVM, but got none, as it has ended; see its log, and try again."
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
            PermissionError(errno.EACCES, "Permission denied", "/lake/a b"),
            "/lake/a b: expected the right to read or write it, but got permission denied; give it to this user.",
            id="a file of somebody else",
        ),
        pytest.param(
            OSError(errno.ESTALE, "Stale file handle", "/lake/a"),
            "/lake/a: expected storage that holds what it has promised, but got stale file handle; mount it anew if "
            "that stays, and try again.",
            id="a file handle of a server that has forgotten it",
        ),
        pytest.param(
            FileNotFoundError(errno.ENOENT, "No such file or directory", "/states/p.parquet"),
            "/states/p.parquet: expected a file that was there when the run began, but got no such file; restore it, "
            "or begin a new run.",
            id="states that were removed between two steps",
        ),
        pytest.param(
            PySparkRuntimeError("[JAVA_GATEWAY_EXITED] Java gateway process exited before sending its port number."),
            "Spark: expected Java 17 or newer, but got none that starts; install it, or set JAVA_HOME; skewless doctor "
            "says what is there.",
            id="no Java",
        ),
        pytest.param(
            OSError(
                "When reading information for key 'a' in bucket 'b': AWS Error NETWORK_CONNECTION during "
                "HeadObject operation: curlCode: 7, Couldn't connect: s3://b/a"
            ),
            "s3://b/a: expected a store that answers, but got When reading information for key 'a' in bucket 'b': AWS "
            "Error NETWORK_CONNECTION during HeadObject operation: curlCode: 7, Couldn't connect: s3://b/a; see "
            "that it is up and that its address is right, and try again.",
            id="a store that does not answer",
        ),
        pytest.param(
            PythonException(
                "[FAILED_READ_FILE.NO_HINT] Encountered error while reading file file:///in/a%20b.parquet. SQLSTATE: "
                "KD001\njava.lang.RuntimeException: no Parquet"
            ),
            "/in/a b.parquet: expected bytes that can be read, but got no Parquet; restore it from a copy.",
            id="a damaged file that Spark reads",
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
    assert not is_unforeseen(err)
    if isinstance(err, OSError) and err.__context__ is None:
        assert str(explained_here(err)) == sentence, "Airflow's own tasks say the same"


@pytest.mark.parametrize(
    ("code", "err"),
    [
        (1, OSError(errno.ENOSPC, "No space left on device")),
        (1, OSError(errno.ESTALE, "Stale file handle")),
        (1, ConnectionRefusedError(errno.ECONNREFUSED, "refused")),
        (2, PythonException("[FAILED_READ_FILE.NO_HINT] reading file /a.parquet.\nnot a Parquet file")),
        (2, PythonException("Encountered error while reading file file:///a.parquet. Details:\nnot a Parquet file")),
        (2, FileNotFoundError(errno.ENOENT, "No such file or directory", "/a")),
        (4, PermissionError(errno.EACCES, "Permission denied", "/a")),
        (4, PySparkRuntimeError("[JAVA_GATEWAY_EXITED] Java gateway process exited.")),
    ],
)
def test_what_a_further_try_cannot_help_has_an_exit_code_of_its_own(code: int, err: Exception) -> None:
    assert exit_code_of(err) == code
    assert (code in HOPELESS) == (code != 1)
