"""What the entries in ``jobs/`` have in common: arguments, session, failure document.

A step that fails leaves one sentence in the run directory, where Airflow finds it; the
stack trace goes to the log, above it.
"""

from __future__ import annotations

import argparse
import datetime as dt
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress

from pyspark.sql import SparkSession

from skewless.documents.failure import Failure
from skewless.errors import SkewlessError
from skewless.run.directory import SPEC_DOCUMENT, RunDirectory
from skewless.run.folder import RUN_GROUP
from skewless.run.publication import require_passed
from skewless.spec.options import parse_options, refuse_more_waves, with_options
from skewless.spec.part import part_named
from skewless.spec.reading import load_spec
from skewless.spec.spec import JobSpec
from skewless_spark.entries.clusters import cluster_name, stay_with
from skewless_spark.prepare.prepare import prepare
from skewless_spark.quality.validate import validate
from skewless_spark.result.merge import merge_states
from skewless_spark.session.connect import connected, released
from skewless_spark.session.session import build_session
from skewless_spark.session.spark_errors import exit_code_of, sentence_for
from skewless_spark.session.step_progress import StepProgress, announce, queued_rows, say
from skewless_spark.sharing import share_stage, share_stages
from skewless_spark.stage.stage import run_stage

Step = Callable[[RunDirectory, argparse.Namespace], str]


def prepare_run() -> None:
    """Entry of ``prepare_run.py``: needs no Spark session, but runs where the data can be read."""
    parser = _parser("Freeze a run: spec, date, listed input, waves, plan 0.")
    parser.add_argument("--spec", help="the job spec, a YAML file; by default the document that the run begins with")
    parser.add_argument("--options", default="{}", help="what this run chooses of the spec's options, a JSON object")
    parser.add_argument("--most-waves", type=int, help="stages that somebody has for waves")
    parser.add_argument("--date", required=True, type=dt.date.fromisoformat, help="the day to compute, YYYY-MM-DD")
    parser.add_argument("--hour", help="of a job of hours, the hour of that day: 00 to 23, or 02b")
    parser.add_argument("--root", required=True, help="where relative paths of the spec start")
    _main(parser, _prepare)


def stage_run() -> None:
    """Entry of ``run_stage.py``."""
    parser = _parser("Run one stage and commit it.")
    parser.add_argument("--stage", required=True, type=int, help="its number")
    _main(parser, _stage)


def stage_share() -> None:
    """Entry of ``share_stage.py``, and of the processes that ``skewless run --cluster`` starts."""
    parser = _parser("Take part in a stage, or in all of them, beside other clusters.")
    parser.add_argument("--stage", type=int, help="its number; by default all stages, to the end of the last one")
    parser.add_argument("--cluster", required=True, help="a name for this cluster, in what is recorded")
    parser.add_argument("--master", help="its Spark master; by default what spark-submit says")
    parser.add_argument("--stay-with", type=int, metavar="PID", help="end when this is not the parent process any more")
    _main(parser, _share)


def states_merge() -> None:
    """Entry of ``merge_states.py``."""
    _main(_parser("Merge the partial states of all stages and commit the result."), _merge)


def result_validate() -> None:
    """Entry of ``validate_result.py``."""
    _main(_parser("Validate ledger and result; exits with 3 if an expectation failed."), _validate)


def _prepare(run: RunDirectory, arguments: argparse.Namespace) -> str:
    if run.exists("job.json") and run.exists("plans/0000.json"):
        # The run is frozen. Its spec may have been edited since, and that is for the next run.
        job = run.job()
    else:
        where = f"spec {arguments.spec or run.path(SPEC_DOCUMENT)}"
        reviewed = load_spec(arguments.spec) if arguments.spec else run.read(SPEC_DOCUMENT, JobSpec)
        # Whoever sends options has checked them; what a job does is not left to whoever sends.
        spec = with_options(reviewed, parse_options(arguments.options, "option --options"), f"options of {where}")
        refuse_more_waves(spec, arguments.most_waves, where)
        part = part_named(
            arguments.date.isoformat(), arguments.hour, spec.schedule.timezone, spec.schedule.unit, "option --"
        )
        job = prepare(run, spec, part.date, arguments.root, where, hour=part.hour)
    return f"{job.extent}, {len(job.waves)} waves"


def _stage(run: RunDirectory, arguments: argparse.Namespace) -> str:
    step = f"stage {arguments.stage}"
    with _session(run, step) as spark, StepProgress(spark, step, queued_rows(run, arguments.stage)):
        report = run_stage(spark, run, arguments.stage)
    return (
        f"stage {report.stage}: {report.admitted_rows:,} rows admitted, {report.backlog_in_rows:,} from the backlog "
        f"({report.forwarded_rows:,} forwarded), {report.processed_rows:,} processed, "
        f"{report.backlog_rows:,} left over; max/mean {report.balance_words}"
    )


def _share(run: RunDirectory, arguments: argparse.Namespace) -> str:
    cluster, stage = cluster_name(arguments.cluster), arguments.stage
    if arguments.stay_with is not None:
        stay_with(arguments.stay_with)
    step = f"stage {stage}" if stage is not None else "stages"
    with _session(run, f"{step} on {cluster}", arguments.master) as spark:
        if stage is None:
            share_stages(spark, run, cluster)
            return f"cluster {cluster}: all stages are committed"
        with StepProgress(spark, f"{step} on {cluster}"):
            report = share_stage(spark, run, stage, cluster)
    return f"cluster {cluster}: stage {stage} is committed, {report.processed_rows:,} rows processed by all together"


def _merge(run: RunDirectory, arguments: argparse.Namespace) -> str:
    del arguments
    with _session(run, "merge") as spark, StepProgress(spark, "merge"):
        commit = merge_states(spark, run)
    return f"merged: {commit.counts['keys']:,} keys from {commit.counts['rows']:,} rows"


def _validate(run: RunDirectory, arguments: argparse.Namespace) -> str:
    del arguments
    with _session(run, "validate") as spark, StepProgress(spark, "validate"):
        report = validate(spark, run)
    require_passed(run, report)
    return f"all {len(report.checks)} expectations held"


@contextmanager
def _session(run: RunDirectory, step: str, master: str | None = None) -> Iterator[SparkSession]:
    """The session of a step, announced so that whoever reads the log can link to its UI."""
    spark = build_session(f"skewless {run.job().spec.name} {step}", master)
    announce(spark)
    with released(spark) if connected() else nullcontext():
        yield spark


def _parser(description: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--run-dir", required=True, help="the run directory")
    parser.add_argument("--failure-name", default="", help="where a failure is noted: failures/NAME.json")
    return parser


def _main(parser: argparse.ArgumentParser, step: Step) -> None:
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
            # What keeps the step from writing may keep this from being written too; the log has it.
            with suppress(SkewlessError):
                run.write_once(f"failures/{arguments.failure_name}.json", failure)
        sys.exit(failure.exit_code)
