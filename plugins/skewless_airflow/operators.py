"""The three kinds of tasks: run a Spark step, decide about the next stage, publish.

They hold no state of their own. Everything they know is in the run directory, so clearing
any of them in Airflow finds what is committed and leaves it alone.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import structlog
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import Asset, BaseOperator, Context
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException
from pydantic import JsonValue

from skewless.decision import Decision
from skewless.errors import RunDirectoryError, SkewlessError
from skewless.failure import Failure, failure_document
from skewless.job import Job
from skewless.publication import publish, require_passed
from skewless.quality_report import QualityReport
from skewless.routing_plan import RoutingPlan
from skewless.run_directory import QUALITY_REPORT, QUALITY_STEP, RunDirectory
from skewless_airflow.places import JOBS, data_root
from skewless_airflow.planning_log import planning_lines
from skewless_airflow.run_store import day_of, run_location

log = structlog.get_logger(__name__)

#: Exit codes that come out the same however often a task is retried: bad spec or input, failed quality.
HOPELESS = frozenset({2, 3})


class SkewlessSparkOperator(SparkSubmitOperator):
    """Runs one entry of ``jobs/`` and believes its commit, not its exit code.

    A Spark task can be green over a job that failed (apache/airflow#49717): what counts is whether
    the step has committed. When spark-submit fails, the task ends with the sentence that the entry
    left, and is only tried again where that can help.

    Args:
        entry: file name of the entry.
        step: the step it commits, like ``stages/0001``; empty for ``prepare``, which writes documents only.
        entry_args: its arguments after the run directory and the name of the failure document.
    """

    def __init__(self, *, entry: str, step: str = "", entry_args: Sequence[str] = (), **kwargs: Any) -> None:
        super().__init__(
            application=str(JOBS / entry),
            conf={
                "spark.driver.memory": os.environ.get("SKEWLESS_DRIVER_MEMORY", "2g"),
                "spark.ui.showConsoleProgress": "false",
            },
            **kwargs,
        )
        self.step = step
        self.entry_args = list(entry_args)

    def execute(self, context: Context) -> None:
        """Submit, then verify."""
        run, try_name = _run_directory(context), _try_name(context)
        self.name = f"{context['dag_run'].dag_id}.{self.task_id}"
        self.application_args = [
            *("--run-dir", str(run), "--failure-name", try_name),
            *self.arguments(context),
        ]
        with _one_sentence():
            try:
                super().execute(context)
            except AirflowException:
                failure = _failure(run, try_name)
                if failure is None:
                    log.warning("spark-submit failed and the step left no reason: it was killed, or it never started")
                    raise
                raise _ending(failure.exit_code, failure.sentence) from None
            finally:
                self._close_pipe()
            self.verify(run)

    def _close_pipe(self) -> None:
        """Close the pipe that the hook read spark-submit's log from; it leaves that to the garbage collector."""
        process = getattr(self._hook, "_submit_sp", None)
        if process is not None and process.poll() is not None:
            process.stdout.close()

    def arguments(self, context: Context) -> list[str]:  # noqa: ARG002  # those of ``prepare`` depend on the run
        """The entry's own arguments."""
        return self.entry_args

    def verify(self, run: RunDirectory) -> None:
        """Hold the step to its commit.

        Raises:
            RunDirectoryError: there is none, although spark-submit ended well.
            QualityError: there is one, and it says that the result failed validation.
        """
        commit = run.commit_of(self.step)
        if commit is None:
            raise RunDirectoryError(
                run.path(self.step), "a commit after spark-submit ended well", "none", "read the Spark log above"
            )
        if self.step == QUALITY_STEP:
            require_passed(run, run.committed_document(commit, QUALITY_REPORT, QualityReport))
        log.info("committed", attempt=commit.attempt, files=len(commit.files), **commit.counts)


class PrepareOperator(SkewlessSparkOperator):
    """Freezes the spec, lists the input and writes plan 0.

    Args:
        spec_path: the spec's file.
        timezone: the time zone of its schedule, in which the run's day is read.
    """

    def __init__(self, *, spec_path: str, timezone: str, **kwargs: Any) -> None:
        super().__init__(entry="prepare_run.py", **kwargs)
        self.spec_path = spec_path
        self.timezone = timezone

    def arguments(self, context: Context) -> list[str]:
        """The spec, the day, and where relative paths start."""
        day = day_of(context["dag_run"], self.timezone)
        return ["--spec", self.spec_path, "--date", day.isoformat(), "--root", data_root()]

    def verify(self, run: RunDirectory) -> None:
        """Hold ``prepare`` to its two documents."""
        job, plan = run.read("job.json", Job), run.read("plans/0000.json", RoutingPlan)
        log.info(
            "prepared",
            rows=job.rows,
            files=len({unit.path for unit in job.units}),
            waves=len(job.waves),
            tasks=len(plan.tasks),
            date=job.date.isoformat(),
        )


class PlanStageOperator(BaseOperator):
    """Decides about one stage from the documents of the one before, and says why.

    Args:
        stage: the stage that is decided about, from 1.
    """

    def __init__(self, *, stage: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.stage = stage

    def execute(self, context: Context) -> None:
        """Decide, write it down, and skip the stage when it is not needed."""
        run = _run_directory(context)
        with _one_sentence():
            ended = _ended_before(run, self.stage)
            if ended is not None:
                raise AirflowSkipException(f"stage {ended.stage - 1} was the last: {ended.sentence}")
            report, decision = run.report(self.stage - 1), run.decide(self.stage)
        for line in planning_lines(report, decision):
            log.info(line)
        if decision.next_plan is None:
            raise AirflowSkipException(decision.sentence)


class PublishOperator(BaseOperator):
    """Moves the validated result into place and tells whoever waits for it.

    Args:
        asset: the published result.
    """

    def __init__(self, *, asset: Asset, **kwargs: Any) -> None:
        super().__init__(outlets=[asset], **kwargs)
        self.asset = asset

    def execute(self, context: Context) -> None:
        """Publish, with path and row counts on the asset event."""
        with _one_sentence():
            published = publish(_run_directory(context))
        facts: dict[str, JsonValue] = {"rows": published.rows, "keys": published.keys, "path": published.path}
        log.info("published", **facts)
        context["outlet_events"][self.asset].extra = facts


def _ended_before(run: RunDirectory, stage: int) -> Decision | None:
    """The decision before ``stage`` by which no further stage was needed, if there is one."""
    for earlier in range(1, stage):
        if not run.exists(f"decisions/{earlier:04d}.json"):
            return None
        decision = run.decision(earlier)
        if decision.next_plan is None:
            return decision
    return None


def _run_directory(context: Context) -> RunDirectory:
    dag_run = context["dag_run"]
    return RunDirectory(run_location(dag_run.dag_id, dag_run.run_id))


def _try_name(context: Context) -> str:
    """A name that no other try has: run ids and try numbers begin anew with a new metadata database."""
    ti = context["ti"]
    return f"{ti.task_id}-{ti.try_number}-{str(ti.id)[-8:]}"


def _failure(run: RunDirectory, try_name: str) -> Failure | None:
    name = failure_document(try_name)
    return run.read(name, Failure) if run.exists(name) else None


@contextmanager
def _one_sentence() -> Iterator[None]:
    """End a task with the sentence of a Skewless error, tried again only where that can help."""
    try:
        yield
    except SkewlessError as err:
        raise _ending(err.exit_code, str(err)) from None


def _ending(exit_code: int, sentence: str) -> AirflowException:
    return (AirflowFailException if exit_code in HOPELESS else AirflowException)(sentence)
