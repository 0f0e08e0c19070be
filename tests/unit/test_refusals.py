"""What libraries of tables say, in a few words."""

from __future__ import annotations

import pytest
from deltalake.exceptions import DeltaError
from sqlalchemy.exc import OperationalError

from skewless.errors import InputError, SpecError, UnreachableError
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


SECRETS = {
    "redis://:s3cr3t@leases:6379/0": "redis://:***@leases:6379/0",
    "rediss://me:s3cr3t/@x@leases/0#n": "rediss://me:***@leases/0#n",
    "postgresql+psycopg2://me:s3cr3t@db:5432/c": "postgresql+psycopg2://me:***@db:5432/c",
    "http://a:s3cr3t@h, then b://c:s3cr3t@d": "http://a:***@h, then b://c:***@d",
    "https://s3cr3t@host/lake": "https://***@host/lake",
    "sc://host:15002/;token=s3cr3t;use_ssl=true": "sc://host:15002/;token=***;use_ssl=true",
    "https://h/x?sv=1&sig=s3cr3t%3D&se=2": "https://h/x?sv=1&sig=***&se=2",
    "s3://b/k?X-Amz-Signature=s3cr3t&X-Amz-Security-Token=s3cr3t": "s3://b/k?X-Amz-Signature=***&X-Amz-Security-Token=***",
    "'redis://u:s3cr3t@h'": "'redis://u:***@h'",
}
PLAIN = (
    "abfss://container@account.dfs.core.windows.net/lake", "s3a://bucket/a:b@c", "hdfs://name:8020/x@y",
    "/lake/key=1/token", "redis://leases:6379/0#token", "s3://bucket/day=1?x", "a b@c: d",
)  # fmt: skip


@pytest.mark.parametrize(("text", "said"), [*SECRETS.items(), *((one, one) for one in PLAIN)])
def test_passwords_and_tokens_of_urls_never_stand_in_sentences(text: str, said: str) -> None:
    assert str(InputError(f"input {text}", f"a file at {text}", text, f"see {text}")) == (
        f"input {said}: expected a file at {said}, but got {said}; see {said}."
    )
    assert str(SpecError.saying(text, "no")) == f"{said}: no."
