"""What may be called when a run fails or is late: examples that need no service, to be copied or extended."""

from __future__ import annotations

from typing import Any

import structlog

from skewless.documents.failure import Failure, failed_step
from skewless.errors import SkewlessError
from skewless.run.directory import RunDirectory
from skewless_airflow.observability.links import skew_page
from skewless_airflow.run_store import run_location

log = structlog.get_logger(__name__)


def report_failure(context: Any) -> None:
    """``on_failure_callback`` of a DAG or a task: the sentence that its last failed step left, and where to look.

    Airflow calls it with the context of the run; it goes to the log of whoever calls it. Send ``failure_facts``
    on to where your team reads.
    """
    dag_id, run_id = _run_of(context)
    log.error("skewless run failed", **failure_facts(dag_id, run_id))


def report_lateness(**kwargs: Any) -> None:
    """Callback of a ``DeadlineAlert``: a run is not done, although it should be.

    A ``SyncCallback`` of it runs in the executor, with the context of the run among its arguments.
    """
    dag_id, run_id = _run_of(kwargs["context"])
    log.warning("skewless run is late", dag_id=dag_id, run_id=run_id, page=skew_page(dag_id, run_id))


def failure_facts(dag_id: str, run_id: str) -> dict[str, str]:
    """Where a failed run is shown, and what its steps said last, by step."""
    run = RunDirectory(run_location(dag_id, run_id))
    facts = {"dag_id": dag_id, "run_id": run_id, "page": skew_page(dag_id, run_id)}
    sentences = {failed_step(path)[0]: said for path in _failures(run) if (said := _sentence(run, path))}
    return {**facts, **sentences}


def _run_of(context: Any) -> tuple[str, str]:
    """DAG and run of a context; that of a deadline holds what the REST API says of the run, and no object."""
    dag_run = context["dag_run"]
    if isinstance(dag_run, dict):
        return str(dag_run["dag_id"]), str(dag_run["dag_run_id"])
    return dag_run.dag_id, dag_run.run_id


def _failures(run: RunDirectory) -> list[str]:
    found = run.fs.glob(f"{run.root}/failures/*.json")
    return sorted((str(path).removeprefix(f"{run.root}/") for path in found), key=failed_step)


def _sentence(run: RunDirectory, path: str) -> str:
    try:
        return run.read(path, Failure).sentence
    except SkewlessError:
        return ""
