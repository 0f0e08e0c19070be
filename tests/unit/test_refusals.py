"""What libraries of tables say, in a few words."""

from __future__ import annotations

import pytest
from deltalake.exceptions import DeltaError
from sqlalchemy.exc import OperationalError

from skewless.errors import SpecError, UnreachableError
from skewless_lake.refusals import reason, told_plainly

OF_DELTA = (
    "Kernel error -> Generic S3 error\n    \x1b[31m\u21b3\x1b[0m Error performing GET http://h/lake/x in 0.1s\n"
    "      \x1b[31m\u21b3\x1b[0m tcp connect error\n        \x1b[31m\u21b3\x1b[0m Connection refused (os error 111)\n"
)


@pytest.mark.parametrize(
    ("err", "words"),
    [
        (OSError(OF_DELTA), "Connection refused (os error 111)"),
        (
            OSError("non-2xx status code\n \u21b3 503 Service Unavailable\n \u21b3 <Code>SlowDown</Code>"),
            "the store answered 503, SlowDown",
        ),
        (
            OSError(
                "When uploading part for key 'k' in bucket 'b': AWS Error SLOW_DOWN (HTTP status 503) during "
                "UploadPart operation: as asked"
            ),
            "SLOW_DOWN during UploadPart, status 503",
        ),
        (OSError("When reading 'k': AWS Error NETWORK_CONNECTION during GetObject operation: curlCode: 28"),
         "NETWORK_CONNECTION during GetObject"),
        (OperationalError("SELECT 1", {}, Exception("database is locked")), "(builtins.Exception) database is locked"),
        (OSError(), "OSError"),
    ],
)  # fmt: skip
def test_a_library_s_message_of_several_lines_becomes_a_few_words(err: Exception, words: str) -> None:
    assert reason(err) == words


@pytest.mark.parametrize("err", [DeltaError("torn"), OSError("torn"), OperationalError("x", {}, Exception())])
def test_errors_of_libraries_are_one_sentence(err: Exception) -> None:
    with pytest.raises(UnreachableError) as told, told_plainly("delta+s3://lake/t"):
        raise err
    said = str(told.value)
    assert said.startswith("delta+s3://lake/t: its store or its catalog cannot be read or written (")
    assert said.endswith("); mend that, and try again.")
    assert "\n" not in said


@pytest.mark.parametrize("err", [SpecError.saying("a", "b"), ValueError("a mistake of ours"), AssertionError()])
def test_errors_of_ours_pass_as_they_are(err: Exception) -> None:
    with pytest.raises(type(err)) as told, told_plainly("t"):
        raise err
    assert told.value is err
