"""The log of a Spark step, as people read it."""

from __future__ import annotations

from collections.abc import Iterator

from skewless_airflow.operators.spark_step import Application, application_of, folded

LINES = [
    "26/11/20 02:00:00 INFO SparkContext: Running Spark version 4.3.0",
    "26/11/20 02:00:01 WARN NativeCodeLoader: Unable to load",
    "skewless: spark application local-1 at http://driver:4040",
    "skewless: stage 1: 2 of 8 tasks, 500,000 of 2,000,000 rows",
    "",
    "26/11/20 02:00:09 ERROR Executor: lost",
    "skewless: stage 1: 8 of 8 tasks, 2,000,000 of 2,000,000 rows",
    "26/11/20 02:00:10 INFO ShutdownHookManager: Shutdown hook called",
]


def test_sparks_own_words_are_folded_and_those_of_a_step_are_not() -> None:
    assert list(folded(LINES)) == [
        "::group::Spark's own log",
        *LINES[:2],
        "::endgroup::",
        "spark application local-1 at http://driver:4040",
        "stage 1: 2 of 8 tasks, 500,000 of 2,000,000 rows",
        "::group::Spark's own log",
        LINES[5],
        "::endgroup::",
        "stage 1: 8 of 8 tasks, 2,000,000 of 2,000,000 rows",
        "::group::Spark's own log",
        LINES[7],
        "::endgroup::",
    ]


def test_lines_are_passed_on_as_they_come() -> None:
    read: list[str] = []

    def source() -> Iterator[str]:
        for line in LINES:
            read.append(line)
            yield line

    reading = folded(source())
    assert next(reading) == "::group::Spark's own log"
    assert read == LINES[:1]


def test_an_application_is_known_by_its_announcement_alone() -> None:
    assert application_of(LINES[2] + "\n") == Application("local-1", "http://driver:4040")
    assert application_of("skewless: spark application local-1 at no address") == Application("local-1", "")
    assert application_of("skewless: spark application local-1 at javascript:alert(1)") == Application("local-1", "")
    assert application_of(LINES[0]) is None
    assert application_of("INFO spark application x at http://y") is None
