"""A step that an operator of one of Airflow's providers submits, and that its task awaits without a slot.

An application has a name, of its run, its step and a number. A try whose worker was lost leaves it running, and the
next try finds it by that name in place of submitting a second one. A number is used up when its application has ended
without a commit. What counts is the commit, not what the provider says.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import importlib
import inspect
import itertools
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, cast

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import BaseOperator, Context
from airflow.sdk.bases.operator import ExecutorSafeguard
from airflow.sdk.exceptions import AirflowException, TaskDeferred
from airflow.triggers.base import BaseTrigger

from skewless.documents.step_documents import Failure, failure_document
from skewless.errors import SpecError
from skewless.spec.clusters import PACKAGE, SUBMIT, SparkSettings
from skewless_airflow.run_store import runs_folder, spark_entry

if TYPE_CHECKING:
    from skewless.run.directory import RunDirectory

#: Of names: Kubernetes and Dataproc allow 63 characters, Databricks 64; Kubernetes adds ``-driver``.
_SHOWN, _DIGEST = 28, 12
#: Of a step whose task has no time limit.
_LONGEST = dt.timedelta(days=1)


class EndedError(Exception):
    """The application of a name had ended before this try; it takes the next number."""


@dataclass(frozen=True)
class Application:
    """What is to be submitted once."""

    name: str
    attempt: str
    """By which the step names its failure."""
    arguments: tuple[str, ...]
    conf: Mapping[str, str]
    seconds: float
    """That it may take."""
    package: str
    """The folder that ``skewless package`` has written; empty where Skewless is installed on the cluster."""
    link: Callable[..., None]
    """Of the task, to an application of Spark's by its id, or by its page."""

    def packaged(self, file: str) -> str:
        """The address of a file of the package."""
        if not self.package:
            raise SpecError(SUBMIT, f"{PACKAGE}, where the cluster has Skewless from", "none", "run skewless package")
        return f"{self.package.rstrip('/')}/{file}"

    @property
    def entry(self) -> str:
        """The file of the step: the package's, or the one that is installed on the cluster as here."""
        return self.packaged("steps.py") if self.package else f"local://{spark_entry('pipeline.py')}"

    def archive(self, *settings: str) -> tuple[list[str], dict[str, str]]:
        """The package's environment as an archive of Spark's, and the settings that name its Python."""
        if not self.package:
            return [], {}
        python = dict.fromkeys(settings, "./environment/bin/python")
        return [f"{self.packaged('environment.tar.gz')}#environment"], python


class Submitter(Protocol):
    """A module for one service; its name is that of the extra that installs the provider."""

    Operator: type[BaseOperator]

    def arguments(self, app: Application, fields: dict[str, Any]) -> dict[str, Any]:
        """The operator's arguments beside the spec's fields, of which it takes out what it builds upon."""

    def begin(self, operator: Any, app: Application, fields: Mapping[str, Any], context: Context) -> BaseTrigger:
        """Submit the application, or find it; the trigger that awaits its end.

        Raises:
            EndedError: it was found, and has ended.
            TaskDeferred: the operator has deferred itself.
        """


def remote_of(task: Any, run: RunDirectory, context: Context) -> RemoteStep | None:
    """The runner of a step whose spec names a service; None if Airflow's connection to Spark says how it is run."""
    if task.spark.on_spark_submit:
        return None
    if "://" not in runs_folder():
        required = "a URL that the cluster reads, like s3://bucket/runs or file:///shared/runs"
        raise SpecError("variable SKEWLESS_RUNS", f"{required} for {SUBMIT}", runs_folder())
    return RemoteStep(task, run, context)


def spark_submit_fields(spark: SparkSettings) -> dict[str, Any]:
    """What a spec says of ``spark-submit`` beside its connection, as arguments of the provider's operator."""
    if not spark.on_spark_submit:
        return {}
    fields = {name: value for name, value in spark.submit.items() if name not in {"runner", "conn_id", "pool"}}
    _require_arguments(SparkSubmitOperator, fields, {"application", "application_args", "conf", "env_vars", "name"})
    return fields


def _require_arguments(kind: type[BaseOperator], fields: Mapping[str, Any], ours: Collection[str]) -> None:
    parents = [parent for parent in kind.__mro__ if issubclass(parent, BaseOperator) and parent is not BaseOperator]
    known = {name for parent in parents for name in inspect.signature(parent.__init__).parameters}
    for field in fields:
        if field not in known:
            raise SpecError(f"{SUBMIT}.{field}", f"an argument of {kind.__name__}", "none of its arguments")
        if field in ours:
            raise SpecError(f"{SUBMIT}.{field}", f"no {field}, which Skewless gives {kind.__name__}", "one")


class RemoteStep:
    """A step that is submitted by a provider's operator, and followed by its trigger."""

    attempt = ""

    def __init__(self, task: Any, run: RunDirectory, context: Context) -> None:
        self._task, self._run, self._context = task, run, context
        fields = dict(task.spark.submit)
        self._runner = fields.pop("runner")
        fields.pop("pool", None)  # of our own task
        try:
            self._submitter = cast("Submitter", importlib.import_module(f"skewless_airflow.runners.{self._runner}"))
        except ImportError as err:
            mend = f"pip install 'skewless[{self._runner}]'"
            raise SpecError(f"{SUBMIT}.runner", f"the provider of {self._runner}", f"none: {err}", mend) from None
        self._package, self._fields = str(fields.pop(PACKAGE, "")), fields
        self._operator: BaseOperator | None = None
        self._failure = ""

    def lines(self) -> Iterator[str]:
        """Submit the step, unless it is committed or runs, and defer the task."""
        yield from ()
        for number in itertools.count(1):
            app = self._application(number)
            if self._committed():
                return
            if not self._run.exists(failure_document(app.attempt)):
                self._begin(app, number)

    def _begin(self, app: Application, number: int) -> None:
        operator = self._operator = self._operator_of(app)
        method = "execute_complete"
        try:
            trigger = self._submitter.begin(operator, app, self._fields, self._context)
        except EndedError:
            return
        except TaskDeferred as deferred:
            trigger, method = deferred.trigger, deferred.method_name
        self._defer(trigger, number, method)

    def _defer(self, trigger: BaseTrigger, number: int, method: str) -> None:
        task = self._task
        kept = {"number": number, "method": method, "link": [task.spark_application, task.application_page]}
        task.defer(trigger=trigger, method_name="resume", kwargs=kept, timeout=self._task.execution_timeout)

    def resumed(self, event: Any, number: int, method: str, link: Sequence[str]) -> Iterator[str]:
        """Take the event of a trigger: the application has ended, or it can be submitted now."""
        self._task.spark_application, self._task.application_page = link
        app = self._application(number)
        if method == "execute":
            yield from self.lines()
            return
        self._operator = self._operator_of(app)
        try:
            getattr(self._operator, method)(self._context, event=event)
        except TaskDeferred as again:
            self._defer(again.trigger, number, again.method_name)
        except AirflowException as err:
            self._failure = str(err)
        self.attempt, document = app.attempt, failure_document(app.attempt)
        sure = not self._failure or getattr(self._submitter, "SURE", True)
        if sure and not self._committed() and not self._run.exists(document):
            sentence = self._failure or "the application ended well without a commit"
            self._run.write_once(document, Failure(exit_code=1, sentence=f"{app.name}: {sentence}"))

    def failure(self) -> str:
        """What the provider says of an application that failed; empty if it ended well."""
        return self._failure

    def stop(self) -> int:
        """End the application of a task that is stopped before it has deferred."""
        if self._operator is None:
            return 0
        self._operator.on_kill()
        return 1

    def close(self) -> None:
        """Let go of the step; its application goes on."""

    def _committed(self) -> bool:
        documents = [f"{self._task.step}/COMMIT.json"] if self._task.step else ["job.json", "plans/0000.json"]
        return all(map(self._run.exists, documents))

    def _application(self, number: int) -> Application:
        task, run = self._task, str(self._run)
        digest = hashlib.sha256(f"{run}\n{task.task_id}".encode()).hexdigest()[:_DIGEST]
        shown = re.sub("[^a-z0-9]+", "-", f"{task.dag_id}-{task.task_id}".lower())[:_SHOWN].strip("-")
        attempt = f"{task.task_id}-{number}-{digest[:8]}"
        # Of a name that is given twice, the last one counts.
        words = [*map(str, task.application_args or ()), "--failure-name", attempt]
        conf = {**task.spark.conf, **(task.conf or {})}
        seconds = (task.execution_timeout or _LONGEST).total_seconds()
        name, link = f"skewless-{shown}-{digest}-{number}", partial(task.link_to, context=self._context)
        return Application(name, attempt, tuple(words), conf, seconds, self._package, link)

    def _operator_of(self, app: Application) -> BaseOperator:
        """The provider's operator, built outside of any DAG.

        Raises:
            SpecError: it has no argument of a field's name.
        """
        task, left = self._task, dict(self._fields)
        ours = self._submitter.arguments(app, left)
        _require_arguments(self._submitter.Operator, self._fields, ours.keys() & left.keys())
        both = {"task_id": task.task_id, "execution_timeout": task.execution_timeout}
        operator = self._submitter.Operator(**left, **ours, **both)
        ExecutorSafeguard.tracker.set(operator)  # that it runs within our task is meant
        return operator
