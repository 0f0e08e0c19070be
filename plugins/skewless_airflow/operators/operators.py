"""The kinds of tasks: run a Spark step, decide about the next stage, publish.

They hold no state of their own. Everything they know is in the run directory, so clearing
any of them in Airflow finds what is committed and leaves it alone.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import structlog
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import Asset, AssetAlias, BaseOperator, BaseOperatorLink, Context
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException
from airflow.sdk.execution_time.context import InletEventsAccessors
from pydantic import JsonValue

from skewless.documents.decision import Decision
from skewless.documents.failure import Failure, failure_document
from skewless.documents.job import Job
from skewless.documents.quality import QualityReport
from skewless.errors import RunDirectoryError, SkewlessError, SpecError
from skewless.planner.planner import plan_next_stage
from skewless.routing.plan import RoutingPlan
from skewless.run.directory import QUALITY_REPORT, QUALITY_STEP, SPEC_DOCUMENT, RunDirectory, stage_step
from skewless.run.folder import RUN_GROUP
from skewless.run.publication import publish, record_of, require_passed, turns_folder
from skewless.run.summary import run_facts
from skewless.spec.clusters import SparkSizing
from skewless.spec.options import refuse_more_waves, with_options
from skewless.spec.spec import JobSpec
from skewless_airflow.connect.step import ConnectAddress, ConnectedStep, connect_address, local_server
from skewless_airflow.observability.lineage import input_lineage, published_lineage
from skewless_airflow.observability.links import (
    DecisionLink,
    QualityReportLink,
    SkewReportLink,
    SparkUiLink,
    push_links,
    quality_page,
    skew_page,
)
from skewless_airflow.observability.metrics import emit, stage_gauges
from skewless_airflow.observability.planning_log import planning_lines
from skewless_airflow.operators.spark_log import END, GROUP, application_of, folded
from skewless_airflow.places import data_root, spark_entry
from skewless_airflow.run_store import part_of_run, run_location
from skewless_airflow.stopping import stop_tree
from skewless_airflow.trigger_form import Choice, chosen
from skewless_leases import Turns, open_store

log = structlog.get_logger(__name__)

#: Exit codes that come out the same however often a task is retried: bad spec or input, failed quality.
HOPELESS = frozenset({2, 3})


class SkewlessSparkOperator(SparkSubmitOperator):
    """Runs one entry of ``skewless_spark.entries`` and believes its commit, not its exit code.

    A Spark task can be green over a job that failed (apache/airflow#49717): what counts is whether
    the step has committed. When it fails, the task ends with the sentence that the entry
    left, and is only tried again where that can help.

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
        self._connected: ConnectedStep | None = None

    def execute(self, context: Context) -> None:
        """Run it, then verify."""
        push_links(context)
        run, try_name = _run_directory(context, self.group), _try_name(context)
        self.name = f"{context['dag_run'].dag_id}.{self.task_id}"
        with _one_sentence():
            self.application_args = [
                *("--run-dir", str(run), "--failure-name", try_name),
                *self.arguments(context, run),
            ]
            sizing = _sizing(self.sizing(run))
            self.conf = {**(self.conf or {}), **sizing}
            server = self._server(sizing)
            try:
                if server is None:
                    self._submit(context)
                else:
                    self._connect(context, server)
            except AirflowException:
                failure = _failure(run, try_name)
                if failure is None:
                    log.warning("the step failed and left no reason: it was killed, or it never started")
                    raise
                raise _ending(failure.exit_code, failure.sentence) from None
            finally:
                self._close_pipe()
                if server is None:
                    self.spark_address = ""  # the application's own UI ends with it
            self.verify(run)

    def _server(self, sizing: Mapping[str, str]) -> ConnectAddress | None:
        """The Spark Connect server that runs this step; None if it goes through spark-submit."""
        server = connect_address(self._conn_id)
        if server is None or not sizing:
            return server
        if server.sized_conn_id:
            log.info("a step with a size of its own is submitted", connection=server.sized_conn_id, **sizing)
            self._conn_id = server.sized_conn_id
            return None
        log.warning("the size is the Spark Connect server's, not what the job asks for", **sizing)
        return server

    def _connect(self, context: Context, server: ConnectAddress) -> None:
        """Run the entry as a client of a server."""
        entry = Path(self.application)
        log.info("%sRun %s on Spark Connect", GROUP, entry.name)
        with local_server() if server.local else nullcontext():
            step = self._connected = ConnectedStep(entry, self.application_args or [], server.environment())
            try:
                for line in self._told(step.lines(), context):
                    log.info(line)
                code = step.exit_code()
            finally:
                step.stop()  # it must not go on beside the attempt that comes after this one
        if code:
            raise AirflowException(f"{entry.name} ended with exit code {code}")

    def _submit(self, context: Context) -> None:
        """Let the provider submit, with a log that can be read."""
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
        """The same lines; the announcement of the application makes its link."""
        for line in lines:
            found = application_of(line)
            if found is not None:
                self.spark_application, self.spark_address = found
                link = SparkUiLink()
                context["ti"].xcom_push(key=link.xcom_key, value=link.get_link(self, ti_key=context["ti"]))
            yield line

    def on_kill(self) -> None:
        """Stop Spark: ask first, so that a cluster is told, and leave no Python behind that goes on alone."""
        if self._connected is not None:
            log.info("stopping the step and what it runs on Spark Connect", processes=self._connected.stop())
        process = getattr(self._hook, "_submit_sp", None)
        if process is not None and process.poll() is None:
            log.info("stopping spark-submit", processes=stop_tree(process.pid))
        if self._hook is not None:
            super().on_kill()

    def sizing(self, run: RunDirectory) -> SparkSizing:
        """How large the application is to be."""
        return run.job().spec.spark

    def _close_pipe(self) -> None:
        """Close the pipe that the hook read spark-submit's log from; it leaves that to the garbage collector."""
        process = getattr(self._hook, "_submit_sp", None)
        if process is not None and process.poll() is not None:
            process.stdout.close()

    def arguments(self, context: Context, run: RunDirectory) -> list[str]:  # noqa: ARG002  # ``prepare`` asks for both
        """The entry's own arguments."""
        return self.entry_args

    def verify(self, run: RunDirectory) -> None:
        """Hold the step to its commit.

        Raises:
            RunDirectoryError: there is none, although the step ended well.
            QualityError: there is one, and it says that the result failed validation.
        """
        commit = run.commit_of(self.step)
        if commit is None:
            raise RunDirectoryError(
                run.path(self.step), "a commit after the step ended well", "none", "read the Spark log above"
            )
        if self.step == QUALITY_STEP:
            require_passed(run, run.committed_document(commit, QUALITY_REPORT, QualityReport))
        log.info("committed", attempt=commit.attempt, files=len(commit.files), **commit.counts)


class PrepareOperator(SkewlessSparkOperator):
    """Freezes the spec, lists the input and writes plan 0.

    What the run was triggered with is checked before Spark starts, and once more in the job.

    Args:
        spec: the spec; the DAG has stages for its waves.
        spec_path: its file; without one the spec itself is sent, as a document of the run directory.
        form: whether the DAG has the spec's trigger form, so that the run's conf chooses among its options.
    """

    def __init__(self, *, spec: JobSpec, spec_path: str = "", form: bool = False, **kwargs: Any) -> None:
        super().__init__(entry="prepare_run.py", **kwargs)
        self.spec = spec
        self.spec_path = spec_path
        self.form = form
        self._chosen = spec

    def arguments(self, context: Context, run: RunDirectory) -> list[str]:
        """The spec, the options, the day, and where relative paths start."""
        choice = self.choice(context)
        self._chosen = with_options(self.spec, choice.options, f"trigger form of {self.dag_id}")
        refuse_more_waves(self._chosen, len(self.spec.routing.waves), f"trigger form of {self.dag_id}")
        if self.spec_path:
            where = ["--spec", self.spec_path]
        else:
            run.write_once(SPEC_DOCUMENT, self.spec)
            where = []
        schedule = self.spec.schedule.of_dag(scheduled=context["dag"].timetable.can_be_scheduled)
        part = choice.part or part_of_run(context["dag_run"], schedule, f"asset events of {self.dag_id}")
        log.info("computes %s", part)
        options = json.dumps(choice.options)
        if choice.options:
            log.info("chosen for this run", **choice.options)
        return [
            *where,
            *("--date", part.date.isoformat(), *(("--hour", part.hour) if part.hour else ()), "--root", data_root()),
            *("--options", options, "--most-waves", str(len(self.spec.routing.waves))),
        ]

    def choice(self, context: Context) -> Choice:
        """What the run was triggered with.

        Raises:
            SpecError: that is not for this form.
        """
        if not self.form:
            return Choice(None, {})
        dag_run, where = context["dag_run"], f"trigger form of {self.dag_id}"
        choice = chosen(dag_run.conf or {}, context["dag"].params, self.spec, where)
        if choice.part is not None and dag_run.run_type == "backfill":
            # All runs of the range would publish under it, one over the other.
            raise SpecError(
                f"{where}, field date", "no date for a backfill, whose runs have their own", str(choice.part)
            )
        return choice

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> Any:
        """What the run reads, for OpenLineage's provider."""
        return input_lineage(_run_of(task_instance, self.group))

    def sizing(self, run: RunDirectory) -> SparkSizing:
        """As it was chosen: there is no job yet."""
        del run
        return self._chosen.spark

    def verify(self, run: RunDirectory) -> None:
        """Hold ``prepare`` to its two documents."""
        job, plan = run.read("job.json", Job), run.read("plans/0000.json", RoutingPlan)
        log.info(
            "prepared",
            rows=job.rows,
            files=len({unit.path for unit in job.units}),
            waves=len(job.waves),
            tasks=len(plan.tasks),
            part=str(job.part),
        )


class ShareStageOperator(SkewlessSparkOperator):
    """Takes part in a stage beside other clusters, who may end it without this one.

    What counts is the stage's commit, whoever made it. A cluster that cannot be reached, or that dies, leaves the
    stage to the others: its task is skipped, where it is a further one, or else tried again until the stage has ended.

    Args:
        stage: its number.
        further: whether the stage can do without it from the beginning.
    """

    def __init__(self, *, stage: int, further: bool, conn_id: str = "spark_default", **kwargs: Any) -> None:
        super().__init__(
            entry="share_stage.py",
            step=stage_step(stage),
            entry_args=("--stage", str(stage), "--cluster", conn_id),
            conn_id=conn_id,
            **kwargs,
        )
        self.stage, self.further, self.cluster = stage, further, conn_id

    def execute(self, context: Context) -> None:
        """Run it; what the others have made of the stage stands."""
        try:
            super().execute(context)
        except AirflowException as err:
            if self.further:
                raise AirflowSkipException(f"cluster {self.cluster} left the stage to the others: {err}") from None
            if not _run_directory(context, self.group).exists(f"{self.step}/COMMIT.json"):
                raise
            log.warning("the other clusters ended the stage without this one", cluster=self.cluster, reason=str(err))


class ValidateOperator(SkewlessSparkOperator):
    """Validates ledger and result; also where that fails, the report is there to be read."""

    operator_extra_links = (SkewReportLink(), QualityReportLink(), SparkUiLink())

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(entry="validate_result.py", step=QUALITY_STEP, **kwargs)


class PlanStageOperator(BaseOperator):
    """Decides about one stage from the documents of the one before, and says why.

    Args:
        stage: the stage that is decided about, from 1.
        group: the name of one aggregation of several in a DAG.
    """

    operator_extra_links = (SkewReportLink(), DecisionLink())

    def __init__(self, *, stage: int, group: str = "", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.stage = stage
        self.group = group

    def execute(self, context: Context) -> None:
        """Decide, write it down, and skip the stage when it is not needed."""
        push_links(context)
        run = _run_directory(context, self.group)
        with _one_sentence():
            ended = _ended_before(run, self.stage)
            if ended is not None:
                raise AirflowSkipException(f"stage {ended.stage - 1} was the last: {ended.sentence}")
            begun = time.monotonic_ns()
            report, decision = run.report(self.stage - 1), run.decide(self.stage, plan_next_stage)
            emit(stage_gauges(report, decision, time.monotonic_ns() - begun), self.dag_id, self.stage)
        for line in planning_lines(report, decision):
            log.info(line)
        if decision.next_plan is None:
            raise AirflowSkipException(decision.sentence)


class PublishOperator(BaseOperator):
    """Moves the validated result into place and tells whoever waits for it.

    Its outlet is an alias: an asset itself would have an event whenever the task ends well. So there is one for each
    run that was published, and none for one that a later run of the day has superseded, or that is cleared.

    Args:
        asset: the published result.
        group: the name of one aggregation of several in a DAG.
    """

    operator_extra_links = (SkewReportLink(), QualityReportLink())

    def __init__(self, *, asset: Asset, group: str = "", **kwargs: Any) -> None:
        self.alias = AssetAlias(name=asset.name)
        super().__init__(outlets=[self.alias], **kwargs)
        self.asset = asset
        self.group = group

    def execute(self, context: Context) -> None:
        """Publish, and say on the asset event what: path, counts, verdict, balance and links."""
        push_links(context)
        run, dag_run = _run_directory(context, self.group), context["dag_run"]
        with _one_sentence():
            again = record_of(run) is not None
            turns = Turns(open_store(turns_folder(run.job().output_path)))
            published = publish(run, turns, dt.datetime.now(tz=dt.UTC))
            if (over := published.superseded) is not None:
                log.warning(
                    "superseded: a later run of the day has published", path=published.path, turn=published.turn,
                    by=over.by.run, in_turn=over.turn,
                )  # fmt: skip
                return
            facts: dict[str, JsonValue] = {
                "rows": published.rows, "keys": published.keys, "path": published.path,
                "run": str(run), "turn": published.turn, **run_facts(run),
            }  # fmt: skip
        log.info("published", **facts)
        if again and self._told(dag_run):
            log.info("its event exists already, so none is added")
            return
        facts["links"] = {
            "skew": skew_page(dag_run.dag_id, dag_run.run_id),
            "quality": quality_page(dag_run.dag_id, dag_run.run_id),
        }
        context["outlet_events"][self.alias].add(self.asset, extra=facts)

    def _told(self, dag_run: Any) -> bool:
        """Whether the run's event is there: Airflow writes it together with the success of the task."""
        events = InletEventsAccessors(inlets=[self.asset])[self.asset]
        mine = (dag_run.dag_id, dag_run.run_id, self.task_id)
        return any((one.source_dag_id, one.source_run_id, one.source_task_id) == mine for one in events)

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> Any:
        """What the run has read and written, for OpenLineage's provider."""
        return published_lineage(_run_of(task_instance, self.group))


def _ended_before(run: RunDirectory, stage: int) -> Decision | None:
    """The decision before ``stage`` by which no further stage was needed, if there is one."""
    for earlier in range(1, stage):
        if not run.exists(f"decisions/{earlier:04d}.json"):
            return None
        decision = run.decision(earlier)
        if decision.next_plan is None:
            return decision
    return None


def _run_directory(context: Context, group: str) -> RunDirectory:
    return _run_of(context["dag_run"], group)


def _run_of(run: Any, group: str) -> RunDirectory:
    """The run directory of whatever has the ids of a run."""
    return RunDirectory(run_location(run.dag_id, run.run_id, group), os.environ.get(RUN_GROUP, ""))


def _sizing(wanted: SparkSizing) -> dict[str, str]:
    """Spark's settings for a sizing; what is not given stays as it is."""
    settings = {
        "spark.driver.memory": wanted.driver_memory,
        "spark.executor.memory": wanted.executor_memory,
        "spark.executor.cores": wanted.executor_cores,
        "spark.cores.max": wanted.cores,
    }
    return {name: str(value) for name, value in settings.items() if value is not None}


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
