"""Who is told of a run, by notifiers of Airflow's providers: a closed table, of which specs name the kinds."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple, cast

import structlog
from airflow.sdk import BaseNotifier, Context

from skewless.documents.steps import Failure, failed_step
from skewless.errors import SkewlessError, SpecError
from skewless.spec.airflow import AirflowSettings, Notifier
from skewless_airflow.observability.links import skew_page
from skewless_airflow.run_store import run_location

log = structlog.get_logger(__name__)

#: All that a template of a message may name.
_FACTS = ("job", "run", "event", "reason", "page", "sentence")
_SUBJECT = "Skewless: {{ outcome.job }} {{ outcome.event }}"


class NotifierClass(NamedTuple):
    """The class of a notifier: its module, its name, and its package; and what it calls its connection."""

    module: str
    name: str
    package: str
    connection: str


NOTIFIERS: Mapping[str, NotifierClass] = {
    "email": NotifierClass(
        "airflow.providers.smtp.notifications.smtp", "SmtpNotifier", "apache-airflow-providers-smtp", "smtp_conn_id"
    ),
    "slack": NotifierClass(
        "airflow.providers.slack.notifications.slack_webhook", "SlackWebhookNotifier",
        "apache-airflow-providers-slack", "slack_webhook_conn_id",
    ),
    "webhook": NotifierClass(
        "airflow.providers.http.notifications", "HttpNotifier", "apache-airflow-providers-http", "http_conn_id"
    ),
}  # fmt: skip


def dag_callbacks(airflow: AirflowSettings) -> dict[str, Any]:
    """The arguments of a DAG by which those are told whom a spec names.

    Raises:
        SpecError: a notifier's provider is not installed.
    """
    for kind in {one.kind for one in airflow.notifiers}:
        of = NOTIFIERS[kind]
        if not _is_installed(of.module):
            raise SpecError(f"notifier {kind}", f"the package {of.package}", "none", f"pip install {of.package}")
    told = {"on_failure_callback": airflow.on_failure, "on_success_callback": airflow.on_success}
    events = {"on_failure_callback": "failed", "on_success_callback": "succeeded"}
    return {
        name: partial(notify, event=events[name], notifiers=[one.model_dump(mode="json") for one in notifiers])
        for name, notifiers in told.items()
        if notifiers
    }


def tell_lateness(notifiers: list[dict[str, Any]], **kwargs: Any) -> None:
    """Callback of a ``DeadlineAlert``: logs that a run has missed its deadline, and tells notifiers of it."""
    report_lateness(**kwargs)
    notify(kwargs["context"], event="is late", notifiers=notifiers)


def notify(context: Any, *, event: str, notifiers: Iterable[Mapping[str, Any]]) -> None:
    """Tell each notifier of a run, also after one of them has failed.

    What is told is data, so a template names it (``outcome.reason``) and never has it in its text.

    Raises:
        Exception: that of the last notifier that failed.
    """
    facts = run_facts_of(context, event)
    failed: Exception | None = None
    for one in notifiers:
        told = Notifier.model_validate(one)
        try:
            notifier_of(told)(cast("Context", {**context, "outcome": facts}))
        except Exception as err:  # noqa: BLE001  # of whichever provider; it is raised below
            log.error("a notifier could not tell", kind=told.kind, of=event, reason=str(err))  # noqa: TRY400
            failed = err
    if failed is not None:
        raise failed


def notifier_of(told: Notifier) -> BaseNotifier:
    """Airflow's notifier, with the templates of what it tells."""
    of = NOTIFIERS[told.kind]
    given: dict[str, Any] = {of.connection: told.conn_id} if told.conn_id else {}
    if told.kind == "email":
        # Keys and paths are data: what they say is no markup.
        given |= {"to": list(told.to), "subject": _SUBJECT, "html_content": f"<p>{_escaped(told.message)}</p>"}
    elif told.kind == "slack":
        given["text"] = told.message
    else:
        facts = {name: f"{{{{ outcome.{name} }}}}" for name in _FACTS}
        given |= {"endpoint": told.endpoint, "json": {"text": told.message, **facts}}
    notifier: BaseNotifier = getattr(importlib.import_module(of.module), of.name)(**given)
    return notifier


def run_facts_of(context: Any, event: str) -> dict[str, str]:
    """What is told of a run, by the names that templates know."""
    dag_id, run_id = run_of(context)
    page = skew_page(dag_id, run_id)
    reason = ""
    if event == "failed":
        steps = {name: said for name, said in failure_facts(dag_id, run_id).items() if name not in _OF_RUN}
        reason = " ".join(f"{step}: {said}" for step, said in steps.items()) or str(context.get("reason") or "")
    elif event == "succeeded" and (warnings := run_warnings(dag_id, run_id)):
        reason = f"{'; '.join(warnings)}."
    sentence = f"Job {dag_id}, run {run_id}, {event}{f': {reason}' if reason else '.'} {page}"
    return dict(zip(_FACTS, (dag_id, run_id, event, reason, page, sentence), strict=True))


#: Of ``failure_facts``, what names the run and no step.
_OF_RUN = ("dag_id", "run_id", "page")


def _escaped(template: str) -> str:
    """A template whose expressions are escaped for HTML."""
    return f"{{% filter e %}}{template}{{% endfilter %}}"


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module.rpartition(".notifications")[0]) is not None
    except ModuleNotFoundError:
        return False


log = structlog.get_logger(__name__)


def report_failure(context: Any) -> None:
    """``on_failure_callback`` of a DAG or a task: logs the error of each failed step and the address of the run's page.

    Airflow calls it with the context of the run. To reach your team, send ``failure_facts`` to where it reads.
    """
    dag_id, run_id = run_of(context)
    log.error("skewless run failed", **failure_facts(dag_id, run_id))


def report_lateness(**kwargs: Any) -> None:
    """Callback of a ``DeadlineAlert``: logs that a run has missed its deadline.

    As a ``SyncCallback`` it runs in the executor, with the context of the run among its arguments.
    """
    dag_id, run_id = run_of(kwargs["context"])
    log.warning("skewless run is late", dag_id=dag_id, run_id=run_id, page=skew_page(dag_id, run_id))


def failure_facts(dag_id: str, run_id: str) -> dict[str, str]:
    """The address of a failed run's page, and by step the last error of each that failed."""
    from skewless.run.directory import RunDirectory

    run = RunDirectory(run_location(dag_id, run_id))
    facts = {"dag_id": dag_id, "run_id": run_id, "page": skew_page(dag_id, run_id)}
    found = [str(path).removeprefix(f"{run.root}/") for path in run.fs.glob(f"{run.root}/failures/*.json")]
    for path in sorted(found, key=failed_step):
        with contextlib.suppress(SkewlessError):
            if said := run.read(path, Failure).sentence:
                facts[failed_step(path)[0]] = said
    return facts


def run_warnings(dag_id: str, run_id: str) -> list[str]:
    """What the published result of a run does not hold, and how many keys are left out of it."""
    from skewless.run.directory import RunDirectory

    with contextlib.suppress(SkewlessError):
        run = RunDirectory(run_location(dag_id, run_id))
        if (quality := run.quality()) is not None:
            return quality.warnings(len(run.job().spec.quality.expectations))
    return []


def run_of(context: Any) -> tuple[str, str]:
    """DAG and run of a context; in that of a deadline the run is a mapping, as the REST API returns it.

    Of a run that failed before any of its tasks began, the context has the DAG itself, and the id of the run.
    """
    dag_run = context.get("dag_run")
    if dag_run is None:
        return context["dag"].dag_id, context["run_id"]
    if isinstance(dag_run, dict):
        return str(dag_run["dag_id"]), str(dag_run["dag_run_id"])
    return dag_run.dag_id, dag_run.run_id
