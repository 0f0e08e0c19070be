"""The steps of a run in one table, for spark-submit and the warm driver: ``run_steps.py STEP --run-dir RUN ...``.

A step that fails leaves one sentence in the run directory, where Airflow finds it, and ends with the exit code of its
error. The stack trace goes to the log, above that sentence.
"""

from __future__ import annotations

import argparse
import datetime as dt
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, cast

from skewless.documents.job import SentSpec
from skewless.documents.step_documents import Failure
from skewless.errors import SkewlessError
from skewless.publication.publish import require_passed
from skewless.run.directory import SPEC_DOCUMENT, RunDirectory
from skewless.run.folder import RUN_GROUP
from skewless.run.step_times import timed
from skewless.spec.options import parse_options, refuse_more_waves, with_options
from skewless.spec.part import part_named
from skewless.spec.reading import load_spec
from skewless_spark.comparison.compare import compare_shadow
from skewless_spark.engines.stage import run_stage
from skewless_spark.entries.shared_runs import cluster_name, stay_with
from skewless_spark.prepare.prepare import prepare
from skewless_spark.quality.expectations import import_soon
from skewless_spark.quality.validate import validate
from skewless_spark.result.merge import merge_states
from skewless_spark.session.session import build_session
from skewless_spark.session.spark_errors import exit_code_of, sentence_for
from skewless_spark.session.step_measures import StepProgress, announce, queued_rows, say, spark_jobs, spark_step
from skewless_spark.sharing import share_stage, share_stages

if TYPE_CHECKING:  # a PySpark that is not whole is told by our own package, which looks at it first
    from pyspark.sql import SparkSession


@contextmanager
def _session(run: RunDirectory, step: str, master: str | None = None) -> Iterator[SparkSession]:
    """The Spark session of a step. Its UI is announced in the log, so that Airflow can link to it."""
    with spark_step(run, step):
        with timed("start or find the session"):
            spark = build_session(f"skewless {run.job().spec.name} {step}", master)
        announce(spark)
        with spark_jobs(spark):
            yield spark


def _prepare(run: RunDirectory, arguments: argparse.Namespace) -> str:
    """Freeze a run: spec, date, listed input, waves, plan 0."""
    if run.exists("job.json") and run.exists("plans/0000.json"):
        # The run is frozen. Its spec may have been edited since; the edit counts for the next run.
        job = run.job()
    else:
        where = f"spec {arguments.spec or run.path(SPEC_DOCUMENT)}"
        reviewed = load_spec(arguments.spec) if arguments.spec else run.read(SPEC_DOCUMENT, SentSpec).spec
        # The sender has checked the options, but only the reviewed spec decides what a job may do: check again.
        spec = with_options(reviewed, parse_options(arguments.options, "option --options"), f"options of {where}")
        refuse_more_waves(spec, arguments.most_waves, where)
        part = part_named(
            arguments.date.isoformat(), arguments.hour, spec.schedule.timezone, spec.schedule.unit, "option --"
        )
        with spark_step(run, "prepare"):
            job = prepare(run, spec, part.date, arguments.root, where, hour=part.hour)
    return "; ".join(filter(None, (f"{job.extent}, {len(job.waves)} waves", job.skipped_words)))


def _stage(run: RunDirectory, arguments: argparse.Namespace) -> str:
    """Run one stage and commit it."""
    step = f"stage {arguments.stage}"
    with _session(run, step) as spark, StepProgress(spark, step, queued_rows(run, arguments.stage)):
        report = run_stage(spark, run, arguments.stage)
    return (
        f"stage {report.stage}: {report.admitted_rows:,} rows admitted, {report.backlog_in_rows:,} from the backlog "
        f"({report.forwarded_rows:,} forwarded), {report.processed_rows:,} processed, "
        f"{report.backlog_rows:,} left over; max/mean {report.balance_words}"
    )


def _share(run: RunDirectory, arguments: argparse.Namespace) -> str:
    """Take part in a stage, or in all of them, beside other clusters."""
    cluster, stage = cluster_name(arguments.cluster), arguments.stage
    if arguments.stay_with is not None:
        stay_with(arguments.stay_with)
    step = f"{'stages' if stage is None else f'stage {stage}'} on {cluster}"
    with _session(run, step, arguments.master) as spark:
        if stage is None:
            share_stages(spark, run, cluster)
            return f"cluster {cluster}: all stages are committed"
        with StepProgress(spark, step):
            report = share_stage(spark, run, stage, cluster)
    return f"cluster {cluster}: stage {stage} is committed, {report.processed_rows:,} rows processed by all clusters"


def _merge(run: RunDirectory, _arguments: argparse.Namespace) -> str:
    """Merge the partial states of all stages and commit the result."""
    with _session(run, "merge") as spark, StepProgress(spark, "merge"):
        commit = merge_states(spark, run)
    return f"merged: {commit.counts['keys']:,} keys from {commit.counts['rows']:,} rows"


def _validate(run: RunDirectory, _arguments: argparse.Namespace) -> str:
    """Validate ledger and result; exits with 3 if an expectation failed."""
    import_soon()
    with _session(run, "validate") as spark, StepProgress(spark, "validate"):
        report = validate(spark, run)
    require_passed(run, report)
    warnings = report.warnings(len(run.job().spec.quality.expectations))
    passed = f"{sum(check.success for check in report.checks)} of {len(report.checks)} checks passed"
    return "; ".join([passed, *warnings]) if warnings else f"all {len(report.checks)} checks passed"


def _compare(run: RunDirectory, _arguments: argparse.Namespace) -> str:
    """Compare the result with another job's; exits with 3 if the spec forbids differences."""
    with _session(run, "compare") as spark, StepProgress(spark, "compare"):
        return compare_shadow(spark, run).verdict


#: What each step does, and its arguments beside those of all steps, as ``argparse`` takes them.
STEPS: dict[str, tuple[Callable[[RunDirectory, argparse.Namespace], str], Mapping[str, Mapping[str, Any]]]] = {
    "prepare": (_prepare, {
        "--spec": {"help": "the job spec, a YAML file; by default the document that the run begins with"},
        "--options": {"default": "{}", "help": "this run's values for the spec's options, a JSON object"},
        "--most-waves": {"type": int, "help": "the largest number of waves that the caller has stages for"},
        "--date": {"required": True, "type": dt.date.fromisoformat, "help": "the day to compute, YYYY-MM-DD"},
        "--hour": {"help": "the hour of that day, for an hourly job: 00 to 23, or 02b"},
        "--root": {"required": True, "help": "where relative paths of the spec start"},
    }),
    "stage": (_stage, {"--stage": {"required": True, "type": int, "help": "the number of the stage, from 0"}}),
    "share": (_share, {
        "--stage": {"type": int, "help": "the number of the stage; by default all stages are shared"},
        "--cluster": {"required": True, "help": "a name for this cluster, for what is recorded"},
        "--master": {"help": "the cluster's Spark master; by default the one that spark-submit sets"},
        "--stay-with": {"type": int, "metavar": "PID", "help": "end when the parent process is not PID any more"},
    }),
    "merge": (_merge, {}),
    "validate": (_validate, {}),
    "compare": (_compare, {}),
}  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the command line, run the step that it names, and print the sentence that the step returns."""
    for stream in (sys.stdout, sys.stderr):  # a log that lacks a character is no failure
        cast("Any", stream).reconfigure(errors="backslashreplace")
    # Whoever asks it to end lets it give back its lease, so that the next try need not wait.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    parser = argparse.ArgumentParser(description="Run one step of a run.")
    commands = parser.add_subparsers(dest="step", required=True, metavar="STEP")
    for name, (step, options) in STEPS.items():
        command = commands.add_parser(name, help=step.__doc__, description=step.__doc__)
        command.add_argument("--run-dir", required=True, help="the run directory")
        command.add_argument("--failure-name", default="", help="write a failure to failures/NAME.json of it")
        for flag, how in options.items():
            command.add_argument(flag, **how)
    parsed = parser.parse_args(arguments)
    run = RunDirectory(parsed.run_dir, os.environ.get(RUN_GROUP, ""))
    try:
        say(STEPS[parsed.step][0](run, parsed))
    except Exception as err:  # noqa: BLE001  # the last line of defence: every failure ends in its sentence
        failure = Failure(exit_code=exit_code_of(err), sentence=sentence_for(err))
        if not isinstance(err, SkewlessError):
            traceback.print_exc()
        sys.stderr.write(f"skewless: {failure.sentence}\n")
        if parsed.failure_name:
            # What keeps the step from writing may keep this from being written too; the log has the sentence.
            with suppress(SkewlessError):
                run.write_once(f"failures/{parsed.failure_name}.json", failure)
        sys.exit(failure.exit_code)


if __name__ == "__main__":
    main()
