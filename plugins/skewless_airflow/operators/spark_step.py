"""A task that runs a Spark step: submitted, or as a client of a Spark Connect server."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import structlog
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import BaseOperatorLink, Context
from airflow.sdk.exceptions import AirflowException

from skewless.documents.quality import QualityReport
from skewless.documents.steps import Failure, failure_document
from skewless.errors import RunDirectoryError
from skewless.run.directory import QUALITY_REPORT, QUALITY_STEP, RunDirectory
from skewless.run.publication.publish import require_passed
from skewless.spec import SparkSizing
from skewless.spec.clusters import require_client_mode
from skewless_airflow.connect.driver import DriverSettings, DriverStep, warm
from skewless_airflow.connect.step import ConnectAddress, ConnectedStep, connect_address, local_server
from skewless_airflow.observability.links import (
    QualityReportLink,
    SkewReportLink,
    SparkUiLink,
    push_links,
)
from skewless_airflow.operators.ending import end_with_sentence, ending
from skewless_airflow.operators.spark_log import END, GROUP, application_of, folded
from skewless_airflow.places import spark_entry
from skewless_airflow.run_store import run_directory
from skewless_airflow.stopping import stop_tree

log = structlog.get_logger(__name__)


class SkewlessSparkOperator(SparkSubmitOperator):
    """Runs one entry of ``skewless_spark.entries`` and trusts its commit, not its exit code.

    A Spark task can succeed although its job failed (apache/airflow#49717), so what counts is whether the step has
    committed. When it fails, the task ends with the error that the entry wrote, and is tried again only where that can
    help.

    Args:
        entry: file name of the entry.
        step: the step it commits, like ``stages/0001``; empty for ``prepare``, which writes documents only.
        entry_args: its arguments after the run directory and the name of the failure document.
        group: the name of one aggregation of several in a DAG.
    """

    operator_extra_links: tuple[BaseOperatorLink, ...] = (SkewReportLink(), SparkUiLink())

    def __init__(
        self, *, entry: str, step: str = "", entry_args: Sequence[str] = (), group: str = "", **kwargs: Any
    ) -> None:
        super().__init__(
            application=str(spark_entry(entry)),
            conf={
                "spark.driver.memory": os.environ.get("SKEWLESS_DRIVER_MEMORY", "2g"),
                "spark.ui.showConsoleProgress": "false",
            },
            **kwargs,
        )
        self.step = step
        self.entry_args = list(entry_args)
        self.group = group
        self.spark_application = self.spark_address = ""
        self._followed: ConnectedStep | DriverStep | None = None

    def execute(self, context: Context) -> None:
        """Run the entry, then verify its commit."""
        push_links(context)
        run, try_name = run_directory(context["dag_run"], self.group), _try_name(context)
        self.name = f"{context['dag_run'].dag_id}.{self.task_id}"
        with end_with_sentence():
            self.application_args = [
                *("--run-dir", str(run), "--failure-name", try_name),
                *self.arguments(context, run),
            ]
            sizing = _sizing(self.sizing(run))
            self.conf = {**(self.conf or {}), **sizing}
            server = self._server(sizing)
            try:
                driver = self._driver(run, server)
                if driver is not None:
                    self._request(context, driver, server)
                elif server is None:
                    self._submit(context)
                else:
                    self._connect(context, server)
            except AirflowException:
                failure = _failure(run, try_name)
                if failure is None:
                    log.warning("the step failed without an error message: it was killed, or it never started")
                    raise
                raise ending(failure.exit_code, failure.sentence) from None
            finally:
                self._close_pipe()
                if server is None:
                    self.spark_address = ""  # the application's own UI ends with it
            self.verify(run)

    def _server(self, sizing: Mapping[str, str]) -> ConnectAddress | None:
        """The Spark Connect server that runs this step; None if it goes through spark-submit.

        Raises:
            SpecError: spark-submit would start the driver on another machine.
        """
        server = connect_address(self._conn_id)
        if server is not None and sizing and server.sized_conn_id:
            log.info("a step with a size of its own is submitted", connection=server.sized_conn_id, **sizing)
            self._conn_id = server.sized_conn_id
        elif server is not None:
            if sizing:
                log.warning("the size is the Spark Connect server's, not what the job asks for", **sizing)
            return server
        require_client_mode(self._get_hook()._connection["deploy_mode"], f"connection {self._conn_id}")  # noqa: SLF001
        return None

    def _driver(self, run: RunDirectory, server: ConnectAddress | None) -> DriverSettings | None:
        """The run's driver on this machine; None if the step is to have a process of its own."""
        if not warm():
            return None
        if server is not None:
            return DriverSettings(str(run), (), server.environment(), self._conn_id)
        hook = self._hook = self._get_hook()
        here = hook._connection["master"].startswith("local")  # noqa: SLF001
        told_of_parent = self._openlineage_inject_parent_job_info or self._openlineage_inject_transport_info
        if not here or told_of_parent or hook._post_submit_commands:  # noqa: SLF001
            return None
        hook._name = self.dag_id  # noqa: SLF001  # the driver's, for all of its steps
        words = hook._build_spark_submit_command(self.application)  # noqa: SLF001  # the hook offers no other way
        submit = words[: len(words) - 1 - len(self.application_args or ())]
        # Neither its UI nor its block manager asks for a password.
        environment = {"SPARK_LOCAL_IP": "127.0.0.1", **os.environ, **(hook._env or {})}  # noqa: SLF001
        return DriverSettings(str(run), tuple(submit), environment, self._conn_id)

    def _request(self, context: Context, driver: DriverSettings, server: ConnectAddress | None) -> None:
        """Let the run's driver run the entry."""
        entry = Path(self.application).name
        log.info("%sRun %s in the run's driver%s", GROUP, entry, " on Spark Connect" if server else "")
        arguments, last = self.application_args or [], self.step == QUALITY_STEP
        self._follow(context, entry, lambda: DriverStep(entry, arguments, driver, last=last), server)

    def _connect(self, context: Context, server: ConnectAddress) -> None:
        """Run the entry as a client of a server, in a process of its own."""
        entry = Path(self.application)
        log.info("%sRun %s on Spark Connect", GROUP, entry.name)
        arguments, environment = self.application_args or [], server.environment()
        self._follow(context, entry.name, lambda: ConnectedStep(entry, arguments, environment), server)

    def _follow(
        self,
        context: Context,
        entry: str,
        begin: Callable[[], ConnectedStep | DriverStep],
        server: ConnectAddress | None,
    ) -> None:
        """Begin a step, with its server if that is local, and log what it says until it ends."""
        with local_server() if server is not None and server.local else nullcontext():
            step = self._followed = begin()
            try:
                for line in self._told(step.lines(), context):
                    log.info(line)
                code = step.exit_code()
            finally:
                step.close()  # it must not run beside the next attempt
        if code:
            raise AirflowException(f"{entry} ended with exit code {code}")

    def _submit(self, context: Context) -> None:
        """Let the provider submit, with a log that is grouped for reading."""
        hook = self._hook = self._get_hook()
        read = hook._process_spark_submit_log  # noqa: SLF001  # the hook offers no other way to its lines

        def tell(itr: Iterator[Any]) -> None:
            read(self._told(itr, context))

        hook._process_spark_submit_log = tell  # type: ignore[method-assign]  # noqa: SLF001
        log.info("%sSubmit %s to Spark", GROUP, self.application.rpartition("/")[2])
        super().execute(context)

    def _told(self, lines: Iterable[str], context: Context) -> Iterator[str]:
        yield END
        yield from folded(self._heard(lines, context))

    def _heard(self, lines: Iterable[str], context: Context) -> Iterator[str]:
        """The same lines; the one that announces the Spark application also pushes its link."""
        for line in lines:
            found = application_of(line)
            if found is not None:
                self.spark_application, self.spark_address = found
                link = SparkUiLink()
                context["ti"].xcom_push(key=link.xcom_key, value=link.get_link(self, ti_key=context["ti"]))
            yield line

    def on_kill(self) -> None:
        """Stop Spark: ask first, so that the cluster is told, and end the driver's Python, which would run on alone."""
        if self._followed is not None:
            log.info("stopping the step and what it runs", processes=self._followed.stop())
        process = getattr(self._hook, "_submit_sp", None)
        if process is not None and process.poll() is None:
            log.info("stopping spark-submit", processes=stop_tree(process.pid))
        if self._hook is not None:
            super().on_kill()

    def sizing(self, run: RunDirectory) -> SparkSizing:
        """The size of the Spark application."""
        return run.job().spec.spark

    def _close_pipe(self) -> None:
        """Close the pipe of spark-submit's log, which the hook leaves to the garbage collector."""
        process = getattr(self._hook, "_submit_sp", None)
        if process is not None and process.poll() is not None:
            process.stdout.close()

    def arguments(self, context: Context, run: RunDirectory) -> list[str]:  # noqa: ARG002  # ``prepare`` asks for both
        """The entry's own arguments."""
        return self.entry_args

    def verify(self, run: RunDirectory) -> None:
        """Require the commit of the step.

        Raises:
            RunDirectoryError: the step ended well without a commit.
            QualityError: the committed quality report says that validation failed.
        """
        commit = run.commit_of(self.step)
        if commit is None:
            raise RunDirectoryError(
                run.path(self.step), "a commit after the step ended well", "none", "read the Spark log above"
            )
        if self.step == QUALITY_STEP:
            require_passed(run, run.committed_document(commit, QUALITY_REPORT, QualityReport))
        log.info("committed", attempt=commit.attempt, files=len(commit.files), **commit.counts)


class ValidateOperator(SkewlessSparkOperator):
    """Validates ledger and result; a failed validation, too, leaves its report."""

    operator_extra_links = (SkewReportLink(), QualityReportLink(), SparkUiLink())

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(entry="validate_result.py", step=QUALITY_STEP, **kwargs)


def _sizing(wanted: SparkSizing) -> dict[str, str]:
    """Spark's settings for a sizing; what the spec leaves open keeps Spark's default."""
    settings = {
        "spark.driver.memory": wanted.driver_memory,
        "spark.executor.memory": wanted.executor_memory,
        "spark.executor.cores": wanted.executor_cores,
        "spark.cores.max": wanted.cores,
    }
    return {name: str(value) for name, value in settings.items() if value is not None}


def _try_name(context: Context) -> str:
    """A name that no other try has, not even after the metadata database was made anew and numbers start again."""
    ti = context["ti"]
    return f"{ti.task_id}-{ti.try_number}-{str(ti.id)[-8:]}"


def _failure(run: RunDirectory, try_name: str) -> Failure | None:
    name = failure_document(try_name)
    return run.read(name, Failure) if run.exists(name) else None
