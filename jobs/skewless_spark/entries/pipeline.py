"""All steps of a run: the whole pipeline in one Spark session, and one step by ``pipeline.py STEP --run-dir RUN ...``.

A step that fails leaves one sentence in the run directory, where Airflow finds it, and ends with the exit code of its
error. The stack trace goes to the log, above that sentence.
"""

from __future__ import annotations

import argparse
import datetime as dt
import os
import re
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, cast

from skewless.documents.job import SentSpec
from skewless.documents.stage_report import Decision, StageReport
from skewless.documents.step_documents import Failure
from skewless.errors import SkewlessError, SpecError
from skewless.planner.planner import plan_next_stage
from skewless.publication.publish import require_passed
from skewless.run.directory import SPEC_DOCUMENT, RunDirectory
from skewless.run.folder import RUN_GROUP
from skewless.run.step_names import last_step_of
from skewless.run.step_times import timed
from skewless.spec.part import part_named
from skewless.spec.reading import load_spec, parse_options, refuse_more_waves, with_options
from skewless_lake.publication import readers_have
from skewless_spark.comparison import compare_shadow
from skewless_spark.engines.stage import run_stage
from skewless_spark.prepare.prepare import prepare
from skewless_spark.quality.expectations import import_soon
from skewless_spark.quality.validate import validate
from skewless_spark.result.merge import merge_states, publish_now
from skewless_spark.session.session import build_session
from skewless_spark.session.spark_errors import exit_code_of, is_unforeseen, sentence_for
from skewless_spark.session.step_measures import StepProgress, announce, queued_rows, say, spark_jobs, spark_step
from skewless_spark.sharing import share_stage, share_stages

if TYPE_CHECKING:  # a PySpark that is not whole is told by our own package, which looks at it first
    from pyspark.sql import SparkSession


#: Is told of each stage once it is committed and the decision after it has been made.
Watcher = Callable[[StageReport, Decision], None]


def run_pipeline(spark: SparkSession, run: RunDirectory, watcher: Watcher = lambda *_: None) -> None:
    """Run a prepared job to its end, starting after its last commit."""
    import_soon()
    run_stages(spark, run, watcher)
    finish_run(spark, run)


def finish_run(spark: SparkSession, run: RunDirectory) -> None:
    """Merge and validate a run whose stages are committed, and do its last step: publish it, or compare it."""
    import_soon()
    with spark_step(run, "merge"), spark_jobs(spark):
        merge_states(spark, run)
    with spark_step(run, "validate"), spark_jobs(spark):
        quality = validate(spark, run)
    require_passed(run, quality, readers_have(run.job()))
    last = last_step_of(run.job().spec)
    with spark_step(run, last.name):
        if last.publishes:
            publish_now(run)
        else:
            with spark_jobs(spark):
                compare_shadow(spark, run)


def run_stages(spark: SparkSession, run: RunDirectory, watcher: Watcher = lambda *_: None) -> None:
    """Run the stages of a prepared job and decide after each, until no further stage is needed."""
    stage = 0
    while True:
        with spark_step(run, f"stage {stage}"), spark_jobs(spark):
            report = run_stage(spark, run, stage)
        with spark_step(run, f"decision {stage + 1}"):
            decision = run.decide(stage + 1, plan_next_stage)
        watcher(report, decision)
        if decision.next_plan is None:
            return
        stage += 1


_NAME = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,49}"


def cluster_name(name: str) -> str:
    """The name of a cluster, checked: leases and files have it in their names."""
    if not re.fullmatch(_NAME, name):
        raise SpecError(
            "option --cluster", "a name of at most 50 letters, digits, dots, hyphens and underscores", repr(name[:80])
        )
    return name


@contextmanager
def _session(
    run: RunDirectory, step: str, master: str | None = None, queued: int | None = None
) -> Iterator[SparkSession]:
    """The Spark session of a step, with its progress in the log, and its UI, so that Airflow can link to it."""
    with spark_step(run, step):
        with timed("start or find the session"):
            spark = build_session(f"skewless {run.job().spec.name} {step}", master)
        announce(spark)
        with spark_jobs(spark), StepProgress(spark, step, queued):
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
    with _session(run, step, queued=queued_rows(run, arguments.stage)) as spark:
        report = run_stage(spark, run, arguments.stage)
    return (
        f"stage {report.stage}: {report.admitted_rows:,} rows admitted, {report.backlog_in_rows:,} from the backlog "
        f"({report.forwarded_rows:,} forwarded), {report.processed_rows:,} processed, "
        f"{report.backlog_rows:,} left over; max/mean {report.balance_words}"
    )


def _share(run: RunDirectory, arguments: argparse.Namespace) -> str:
    """Take part in a stage, or in all of them, beside other clusters."""
    cluster, stage = cluster_name(arguments.cluster), arguments.stage
    step = f"{'stages' if stage is None else f'stage {stage}'} on {cluster}"
    with _session(run, step, arguments.master) as spark:
        if stage is None:
            share_stages(spark, run, cluster)
            return f"cluster {cluster}: all stages are committed"
        report = share_stage(spark, run, stage, cluster)
    return f"cluster {cluster}: stage {stage} is committed, {report.processed_rows:,} rows processed by all clusters"


def _merge(run: RunDirectory, _arguments: argparse.Namespace) -> str:
    """Merge the partial states of all stages and commit the result."""
    with _session(run, "merge") as spark:
        commit = merge_states(spark, run)
    return f"merged: {commit.counts['keys']:,} keys from {commit.counts['rows']:,} rows"


def _validate(run: RunDirectory, _arguments: argparse.Namespace) -> str:
    """Validate ledger and result; exits with 3 if an expectation failed."""
    import_soon()
    with _session(run, "validate") as spark:
        report = validate(spark, run)
    require_passed(run, report, readers_have(run.job()))
    warnings = report.warnings(len(run.job().spec.quality.expectations))
    passed = f"{sum(check.success for check in report.checks)} of {len(report.checks)} checks passed"
    return "; ".join([passed, *warnings]) if warnings else f"all {len(report.checks)} checks passed"


def _compare(run: RunDirectory, _arguments: argparse.Namespace) -> str:
    """Compare the result with another job's; exits with 3 if the spec forbids differences."""
    with _session(run, "compare") as spark:
        return compare_shadow(spark, run).verdict


def _require_version(asked: str | None) -> None:
    here = version("skewless")
    if asked not in {None, here}:
        hint = "install the same one on both sides, or run skewless package again"
        raise SpecError("step", f"Skewless {asked}, as in Airflow", f"{here} where it runs", hint)


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
    }),
    "merge": (_merge, {}),
    "validate": (_validate, {}),
    "compare": (_compare, {}),
}  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the command line, run the step that it names, and print the sentence that the step returns."""
    for stream in (sys.stdout, sys.stderr):  # a log that lacks a character is no failure
        cast("Any", stream).reconfigure(errors="backslashreplace")
    # Asked to end, it gives its lease back, and the next try need not wait.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    parser = argparse.ArgumentParser(description="Run one step of a run.")
    commands = parser.add_subparsers(dest="step", required=True, metavar="STEP")
    for name, (step, options) in STEPS.items():
        command = commands.add_parser(name, help=step.__doc__, description=step.__doc__)
        command.add_argument("--run-dir", required=True, help="the run directory")
        command.add_argument("--version", help="of Skewless where the step is asked for; another one is refused")
        command.add_argument("--failure-name", default="", help="write a failure to failures/NAME.json of it")
        for flag, how in options.items():
            command.add_argument(flag, **how)
    parsed = parser.parse_args(arguments)
    run = RunDirectory(parsed.run_dir, os.environ.get(RUN_GROUP, ""))
    try:
        _require_version(parsed.version)
        say(STEPS[parsed.step][0](run, parsed))
    except Exception as err:  # noqa: BLE001  # the last line of defence: every failure ends in its sentence
        failure = Failure(exit_code=exit_code_of(err), sentence=sentence_for(err))
        if is_unforeseen(err):
            traceback.print_exc()
        sys.stderr.write(f"skewless: {failure.sentence}\n")
        if parsed.failure_name:
            # What keeps the step from writing may keep this from being written too; the log has the sentence.
            with suppress(SkewlessError):
                run.write_once(f"failures/{parsed.failure_name}.json", failure)
        sys.exit(failure.exit_code)


if __name__ == "__main__":
    main()
