"""What all entries have in common: arguments, session, failure document.

An entry that fails leaves one sentence in the run directory, where Airflow finds it. The stack trace goes to the log,
above that sentence.
"""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, cast

from pyspark.sql import SparkSession

from skewless.documents.steps import Failure
from skewless.errors import SkewlessError
from skewless.run.directory import RunDirectory
from skewless.run.folder import RUN_GROUP
from skewless.run.step_times import timed
from skewless_spark.session.session import build_session
from skewless_spark.session.spark_errors import exit_code_of, sentence_for
from skewless_spark.session.step_progress import announce, say
from skewless_spark.session.step_times import spark_jobs, spark_step


def entry_parser(description: str) -> argparse.ArgumentParser:
    """A parser with the arguments that every entry takes."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--run-dir", required=True, help="the run directory")
    parser.add_argument("--failure-name", default="", help="write a failure to failures/NAME.json of the run directory")
    return parser


def run_entry(parser: argparse.ArgumentParser, step: Callable[[RunDirectory, argparse.Namespace], str]) -> None:
    """Parse the command line, run the step, and print the sentence that it returns.

    A step that raises ends the process with the exit code of its error (``exit_code_of``).
    """
    for stream in (sys.stdout, sys.stderr):  # a log that lacks a character is no failure
        cast("Any", stream).reconfigure(errors="backslashreplace")
    arguments = parser.parse_args()
    run = RunDirectory(arguments.run_dir, os.environ.get(RUN_GROUP, ""))
    try:
        say(step(run, arguments))
    except Exception as err:  # noqa: BLE001  # the last line of defence: every failure ends in its sentence
        failure = Failure(exit_code=exit_code_of(err), sentence=sentence_for(err))
        if not isinstance(err, SkewlessError):
            traceback.print_exc()
        sys.stderr.write(f"skewless: {failure.sentence}\n")
        if arguments.failure_name:
            # What keeps the step from writing may keep this from being written too; the log has the sentence.
            with suppress(SkewlessError):
                run.write_once(f"failures/{arguments.failure_name}.json", failure)
        sys.exit(failure.exit_code)


@contextmanager
def step_session(run: RunDirectory, step: str, master: str | None = None) -> Iterator[SparkSession]:
    """The Spark session of a step. Its UI is announced in the log, so that Airflow can link to it."""
    with spark_step(run, step):
        with timed("start or find the session"):
            spark = build_session(f"skewless {run.job().spec.name} {step}", master)
        announce(spark)
        with spark_jobs(spark):
            yield spark
