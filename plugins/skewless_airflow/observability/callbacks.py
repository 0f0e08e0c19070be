"""Callbacks for runs that fail, warn or are late: examples that need no service, to copy or to extend."""

from __future__ import annotations

import contextlib
from typing import Any

import structlog

from skewless.documents.step_documents import Failure, failed_step
from skewless.errors import SkewlessError
from skewless_airflow.observability.links import skew_page
from skewless_airflow.run_store import run_location

log = structlog.get_logger(__name__)


def report_failure(context: Any) -> None:
    """``on_failure_callback`` of a DAG or a task: logs the error of each failed step and the address of the run's page.

    Airflow calls it with the context of the run. To reach your team, send ``failure_facts`` to where it reads.
    """
    dag_id, run_id = run_of(context)
    log.error("skewless run failed", **failure_facts(dag_id, run_id))


def report_warnings(context: Any) -> None:
    """``on_success_callback`` of a DAG: logs what its published result does not hold, if there is anything."""
    from skewless.run.directory import RunDirectory

    dag_id, run_id = run_of(context)
    with contextlib.suppress(SkewlessError):
        run = RunDirectory(run_location(dag_id, run_id))
        quality = run.quality()
        if quality is not None and (warnings := quality.warnings(len(run.job().spec.quality.expectations))):
            page = skew_page(dag_id, run_id)
            log.warning("skewless run warns", page=page, dag_id=dag_id, run_id=run_id, facts=warnings)


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
