"""What the log of a table says of files, rows and runs: rules that take no table to try."""

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from deltalake.exceptions import DeltaError
from sqlalchemy.exc import OperationalError

from skewless.errors import InputError, SpecError, UnreachableError
from skewless.spec.part import Part
from skewless.spec.result import Output
from skewless_lake.delta_log import bounds_of
from skewless_lake.formats import reason, told, told_plainly, written
from skewless_lake.staged_files import OutputPart, TableRule, rules_digest
from skewless_lake.staging import fitted, part_fields

AT = dt.datetime(2026, 7, 1, 1, 0, 0, 999_500)  # noqa: DTZ001  # as some columns have it
ABROAD = AT.replace(tzinfo=dt.timezone(dt.timedelta(hours=2)))
MILLISECOND = dt.datetime(2026, 7, 1, 1, 0, 0, 999_000)  # noqa: DTZ001


@pytest.mark.parametrize(
    ("low", "high", "bounds"),
    [
        (-1, 5, (-1, 5)),
        (0, 0, (0, 0)),
        ("", "z", ("", "z")),
        (False, True, None),  # in JSON no number
        (1.5, 2.5, None),  # NaN may be among them
        (Decimal("1.10"), Decimal("2.20"), None),
        (dt.date(2026, 7, 1), dt.date(2026, 7, 2), ("2026-07-01", "2026-07-02")),
        (AT, AT, ("2026-07-01T01:00:00.999", "2026-07-01T01:00:01.000")),
        (MILLISECOND, MILLISECOND, ("2026-07-01T01:00:00.999", "2026-07-01T01:00:00.999")),
        (ABROAD, ABROAD, ("2026-06-30T23:00:00.999Z", "2026-06-30T23:00:01.000Z")),
        ("a" * 80, "b" * 80, ("a" * 64, "b" * 63 + "\U0010ffff")),
        ("b" * 64, "b" * 64, ("b" * 64, "b" * 64)),
        ("a", "\U0010ffff" * 80, ("a", "\U0010ffff" * 80)),  # no shorter text is above it
        (None, 5, None),
        (1, None, None),
    ],
)  # fmt: skip
def test_bounds_are_exact_or_wider_or_not_told(low: Any, high: Any, bounds: tuple[Any, Any] | None) -> None:
    assert bounds_of(low, high) == bounds


def test_rules_of_a_table_have_a_digest_of_their_names_and_conditions_in_order() -> None:
    rules = [TableRule(name="CHECK a", condition="a > 0"), TableRule(name="NOT NULL b")]
    others = [
        rules[:1], rules[::-1], [rules[0], TableRule(name="NOT NULL c")],
        [TableRule(name="CHECK a", condition="a > 1"), rules[1]],
    ]  # fmt: skip
    digests = {rules_digest(one) for one in (rules, *others)}
    assert len(digests) == 5
    assert rules_digest([]) == ""
    assert rules_digest(list(rules)) in digests


def test_what_others_wrote_into_a_history_is_not_ours() -> None:
    history = {**written({"turn": "3", "run": "r"}), "turn": "9", "operation": "append", "xskewless.turn": "8"}
    assert told(history) == {"turn": "3", "run": "r"}
    assert told({"operation": "append"}) == {}


def part_of(hour: str | None, column: str = "date") -> OutputPart:
    output = Output.model_validate({"format": "delta", "path": "t", "partition": column})
    return OutputPart(output, "t", "/", Part(dt.date(2026, 11, 20), hour))


@pytest.mark.parametrize("hour", [None, "07"])
def test_a_row_says_of_which_part_it_is_in_the_column_of_the_output(hour: str | None) -> None:
    target = part_of(hour, "day")
    values = {"day": dt.date(2026, 11, 20), **({"hour": hour} if hour else {})}
    assert target.values == values
    assert {field.name: field.type for field in part_fields(target)} == (
        {"day": pa.date32(), **({"hour": pa.string()} if hour else {})}
    )


def test_rows_of_a_result_become_rows_of_the_table_by_the_names_of_columns() -> None:
    kind = pa.schema(
        [
            ("n", pa.int64()),
            ("later", pa.string()),
            ("k", pa.string()),
            ("date", pa.date32()),
            pa.field("m", pa.int64(), nullable=False),
        ]
    )
    # The result has its own order, a narrower integer, a column that the table lacks, and one of the part's name.
    batch = pa.record_batch(
        {"k": ["a", None], "n": pa.array([1, 2], pa.int32()), "more": [1, 2], "date": ["x", "y"], "m": [3, 4]}
    )
    day = dt.date(2026, 11, 20)
    assert fitted(batch, kind, {"date": day}).to_pylist() == [
        {"n": 1, "later": None, "k": "a", "date": day, "m": 3}, {"n": 2, "later": None, "k": None, "date": day, "m": 4}
    ]  # fmt: skip
    with pytest.raises(
        SpecError, match=r"'m' of the output's table: expected a value in each row.*nulls in 1 of 2 rows"
    ):
        fitted(batch.set_column(4, "m", pa.array([None, 4])), kind, {"date": day})


# What libraries of tables say, in a few words.

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
