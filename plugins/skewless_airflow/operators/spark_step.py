"""Tasks that run a Spark step, in the way that the connection of the task says."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import structlog
from airflow.configuration import conf as configuration
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.common.compat.openlineage.utils.spark import (
    inject_parent_job_information_into_spark_properties,
    inject_transport_information_into_spark_properties,
)
from airflow.sdk import BaseHook, BaseOperatorLink, Context
from airflow.sdk.exceptions import AirflowException, AirflowNotFoundException, AirflowSkipException

from skewless.documents.step_documents import Failure, failure_document
from skewless.errors import RunDirectoryError, SpecError
from skewless.run.step_names import (
    COMPARE,
    COMPARISON_STEP,
    PUBLISH,
    QUALITY_REPORT,
    QUALITY_STEP,
    last_step_of,
    stage_step,
)
from skewless.spec import SparkSettings
from skewless.spec.clusters import DEFAULT_CONNECTION, SUBMIT
from skewless_airflow.observability.links import QualityReportLink, SkewReportLink, SparkUiLink, push_links
from skewless_airflow.operators import end_with_sentence, ending, try_name
from skewless_airflow.run_store import run_directory, spark_entry
from skewless_airflow.runners import RemoteStep, Step, StepRunner, master_of, remote_of, runner_of, spark_submit_fields

if TYPE_CHECKING:
    from skewless.run.directory import RunDirectory

log = structlog.get_logger(__name__)

MARK = "skewless: "
#: Steps after which a run may need no Spark: its spec says which.
_LAST = {one.on_spark for one in (PUBLISH, COMPARE)}
GROUP, END = "::group::", "::endgroup::"
CHATTER = f"{GROUP}Spark's own log"
#: A step's announcement of its Spark application.
_APPLICATION = re.compile(r"^skewless: spark application (?P<id>\S+) at (?P<address>\S.*)$")


class SkewlessSparkOperator(SparkSubmitOperator):
    """Runs one of ``skewless_spark.entries.pipeline`` and trusts its commit, not its exit code.

    A Spark task can succeed although its job failed (apache/airflow#49717), so what counts is whether the step has
    committed. When it fails, the task ends with the error that the step wrote, and is tried again only where that can
    help.

    Args:
        step: the step it commits, like ``stages/0001``; empty for ``prepare``, which writes documents only.
        step_args: its arguments after the run directory and the name of the failure document.
        group: the name of one aggregation of several in a DAG.
        spark: what the spec says of Spark, unless the arguments beside it say otherwise.
        conf: Spark's settings over those of the spec and ours; a template of Airflow, as of ``SparkSubmitOperator``.
    """

    operator_extra_links: tuple[BaseOperatorLink, ...] = (SkewReportLink(), SparkUiLink())

    def __init__(
        self,
        *,
        spark_step: str,
        step: str = "",
        step_args: Sequence[str] = (),
        group: str = "",
        spark: SparkSettings | None = None,
        conn_id: str | None = None,
        pool: str | None = None,
        conf: Mapping[str, str] | None = None,
        env_vars: Mapping[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        self.spark = spark = spark or SparkSettings()
        # A task of a pool that does not exist waits for ever: another than Airflow's default only where it is named.
        usual = os.environ.get("SKEWLESS_POOL") or configuration.get("skewless", "pool", fallback="") or "default_pool"
        super().__init__(
            application=str(spark_entry("pipeline.py")),
            conf=dict(conf or {}),
            conn_id=conn_id or spark.submit.get("conn_id", DEFAULT_CONNECTION),
            pool=pool or spark.pool or usual,
            env_vars=dict(env_vars or {}) or None,
            **{**spark_submit_fields(spark), **kwargs},
        )
        #: Below ``conf``, which is a template of Airflow: what a spec says reaches Spark as it is written.
        self.settings = {
            "spark.driver.memory": os.environ.get("SKEWLESS_DRIVER_MEMORY", "2g"),
            "spark.ui.showConsoleProgress": "false",
            **spark.conf,
        }
        self.spark_step, self.step = spark_step, step
        self.step_args = list(step_args)
        self.group = group
        self.spark_application = self.spark_address = self.application_page = ""
        self._runner: StepRunner | None = None

    def execute(self, context: Context) -> None:
        """Run the step, then verify its commit."""
        push_links(context)
        self._run_step(context, lambda runner: runner.lines())

    def resume(self, context: Context, event: Any = None, **kept: Any) -> None:
        """Go on after a trigger, then verify the step's commit."""
        self._run_step(context, lambda runner: cast("RemoteStep", runner).resumed(event, **kept))

    def _run_step(self, context: Context, lines: Callable[[StepRunner], Iterator[str]]) -> None:
        own_name = try_name(context["ti"])
        self.name = f"{context['dag_run'].dag_id}.{self.task_id}"
        with end_with_sentence(context, self.group):
            run = run_directory(context["dag_run"], self.group)
            self.application_args = [
                *(self.spark_step, "--run-dir", str(run), "--version", version("skewless"), "--failure-name", own_name),
                *self.arguments(context, run),
            ]
            self._runner = remote_of(self, run, context) or runner_of(self.step_of(run, context))
            try:
                self._follow(self._runner, lines(self._runner), context)
            except AirflowException as err:
                document = failure_document(self._runner.attempt or own_name)
                if not run.exists(document):
                    raise AirflowException(f"{err}: it was killed, or it never started; see the log above") from None
                failure = run.read(document, Failure)
                raise ending(failure.exit_code, failure.sentence, context, self.group) from None
            finally:
                self.spark_address = ""  # the application's own UI ends with it
            self.verify(run)

    def step_of(self, run: RunDirectory, context: Context) -> Step:
        """The step as it is asked for, with all settings of the task.

        Raises:
            SpecError: its connection does not exist, for which Spark's provider would take YARN.
        """
        self.conf = {**self.settings, **(self.conf or {})}
        if self._openlineage_inject_parent_job_info:
            self.conf = inject_parent_job_information_into_spark_properties(self.conf, context)
        if self._openlineage_inject_transport_info:
            self.conf = inject_transport_information_into_spark_properties(self.conf, context)
        try:
            connection = BaseHook.get_connection(self._conn_id)
        except AirflowNotFoundException:
            hint = f"create it: airflow connections add {self._conn_id} --conn-type spark --conn-host MASTER"
            raise SpecError(f"connection {self._conn_id}", "a connection to Spark", "none", hint) from None
        self._hook = self._get_hook()
        return Step(
            entry=self.application,
            arguments=tuple(self.application_args or ()),
            run_dir=str(run),
            dag_id=self.dag_id,
            conn_id=self._conn_id,
            master=master_of(connection),
            deploy_mode=self._deploy_mode or connection.extra_dejson.get("deploy-mode") or "",
            conf=self.conf or {},
            variables=self.env_vars or {},
            follow_ups=bool(self.post_submit_commands),
            hook=self._hook,
            last=self.step in _LAST and self.step == last_step_of(run.job().spec).on_spark,
        )

    def _follow(self, runner: StepRunner, lines: Iterable[str], context: Context) -> None:
        log.info("%sRun step %s", GROUP, self.spark_step)
        try:
            log.info(END)
            for line in folded(self._heard(lines, context)):
                log.info(line)
            failure = runner.failure()
        finally:
            runner.close()  # it must not run beside the next attempt
        if failure:
            raise AirflowException(f"step {self.spark_step}: {failure}")

    def _heard(self, lines: Iterable[str], context: Context) -> Iterator[str]:
        for line in lines:
            if (found := application_of(line)) is not None:
                self.link_to(*found, context=context)
            yield line

    def link_to(self, ident: str, address: str = "", page: str = "", *, context: Context) -> None:
        """Push the link to a Spark application."""
        self.spark_application, self.spark_address, self.application_page = ident, address, page
        link = SparkUiLink()
        context["ti"].xcom_push(key=link.xcom_key, value=link.get_link(self, ti_key=context["ti"]))

    def on_kill(self) -> None:
        """Stop the step, with Spark: it would run on alone."""
        if self._runner is not None:
            log.info("stopping the step and what it runs", processes=self._runner.stop())

    def arguments(self, context: Context, run: RunDirectory) -> list[str]:  # noqa: ARG002  # ``prepare`` asks for both
        """The step's own arguments."""
        return self.step_args

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
            from skewless.documents.quality import QualityReport
            from skewless.publication.publish import require_passed
            from skewless_lake.publication import readers_have

            report = run.committed_document(commit, QUALITY_REPORT, QualityReport)
            require_passed(run, report, readers_have(run.job()))
            for sentence in report.bands.left if report.bands else ():
                log.warning(sentence)
        log.info("committed", attempt=commit.attempt, files=len(commit.files), **commit.counts)


class ValidateOperator(SkewlessSparkOperator):
    """Validates ledger and result; a failed validation, too, leaves its report."""

    operator_extra_links = (SkewReportLink(), QualityReportLink(), SparkUiLink())

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(spark_step="validate", step=QUALITY_STEP, **kwargs)

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> Any:
        """What was checked of the result, for OpenLineage's provider, which asks for it after a failure, too."""
        from skewless_airflow.observability.lineage import checked_lineage

        return checked_lineage(run_directory(task_instance, self.group))


class CompareOperator(SkewlessSparkOperator):
    """The last task of a job in the shadow of another one: it compares the results, and tells no other DAG of it.

    It has no outlets: nothing is published, so there is no asset event.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(spark_step="compare", step=COMPARISON_STEP, **kwargs)

    def verify(self, run: RunDirectory) -> None:
        """Require the commit, and log how many keys differ."""
        super().verify(run)
        found = run.comparison()
        if found is not None:
            (log.warning if found.found else log.info)("%s; nothing was published", found.verdict)
            found.require_allowed(run.job().spec.shadow, f"comparison of {run}")


class ShareStageOperator(SkewlessSparkOperator):
    """Takes part in a stage beside other clusters, which may finish it without this one.

    What counts is the stage's commit, whichever cluster made it. A cluster that cannot be reached, or that dies,
    leaves the stage to the others: the task of a further cluster is then skipped, that of the first one is tried again
    until the stage has committed.

    Args:
        further: whether this is not the first cluster, so that the stage can do without it.
    """

    def __init__(
        self, *, stage: int, further: bool, spark: SparkSettings, conn_id: str | None = None, **kwargs: Any
    ) -> None:
        if not spark.on_spark_submit:
            raise SpecError("sharing.connections", "steps by spark-submit", f"{SUBMIT}: {spark.submit}")
        conn_id = conn_id or spark.submit.get("conn_id", DEFAULT_CONNECTION)
        super().__init__(
            spark=spark,
            spark_step="share",
            step=stage_step(stage),
            step_args=("--stage", str(stage), "--cluster", conn_id),
            conn_id=conn_id,
            **kwargs,
        )
        self.stage, self.further, self.cluster = stage, further, conn_id

    def execute(self, context: Context) -> None:
        """Run it; if this cluster fails, a commit of the others counts."""
        try:
            super().execute(context)
        except AirflowException as err:
            if self.further:
                raise AirflowSkipException(f"cluster {self.cluster} left the stage to the others: {err}") from None
            if not run_directory(context["dag_run"], self.group).exists(f"{self.step}/COMMIT.json"):
                raise
            log.warning("the other clusters finished the stage without this one", cluster=self.cluster, reason=str(err))


class Application(NamedTuple):
    """A Spark application, and the address of its UI; empty where it has none."""

    ident: str
    address: str


def folded(lines: Iterable[str]) -> Iterator[str]:
    """A log in which lines of Spark that follow each other form a group.

    A line of the step closes the group, and so does the end of the log: what Airflow logs next is outside of it.
    """
    within = False
    for line in lines:
        ours = line.startswith(MARK)
        if ours and within:
            yield END
        elif not ours and not within:
            if not line.strip():
                continue
            yield CHATTER
        within = not ours
        yield line.removeprefix(MARK)
    if within:
        yield END


def application_of(line: str) -> Application | None:
    """The application that a line announces."""
    found = _APPLICATION.match(line.strip())
    if found is None:
        return None
    address = found["address"]
    return Application(found["id"], address if address.startswith(("http://", "https://")) else "")
