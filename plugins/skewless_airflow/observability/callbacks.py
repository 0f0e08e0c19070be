"""Callbacks for runs that fail, warn or are late: examples that need no service, to copy or to extend; and gauges.

Gauges (docs/operate.md) are sent where Airflow sends its own: to StatsD or OpenTelemetry. Their names of stages follow
the list of Samza's SEP-32, as far as a batch has what it lists. What SEP-32 measures for each message (the hash of its
key, reads and writes of a store) is part of a Spark task here, and is not told apart.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import structlog
from airflow.sdk.observability.stats import Stats

from skewless.documents.step_documents import Failure, failed_step
from skewless.errors import SkewlessError
from skewless.run.step_names import stage_step
from skewless.run.step_times import times_of_step
from skewless_airflow.observability.links import skew_page
from skewless_airflow.run_store import run_location, runs_folder

if TYPE_CHECKING:
    from skewless.documents.stage_report import Decision, StageReport
    from skewless.publication.records import Publication
    from skewless.run.directory import RunDirectory


log = structlog.get_logger(__name__)


def report_failure(context: Any) -> None:
    """``on_failure_callback`` of a DAG or a task: logs the error of each failed step and the address of the run's page.

    Airflow calls it with the context of the run. To reach your team, send ``failure_facts`` to where it reads.
    """
    dag_id, run_id = run_of(context)
    log.error("skewless run failed", **failure_facts(dag_id, run_id))


def report_warnings(context: Any) -> None:
    """``on_success_callback`` of a DAG: logs what its published result does not hold, if there is anything."""
    dag_id, run_id = run_of(context)
    for group, run in _runs(dag_id, run_id).items():
        with contextlib.suppress(SkewlessError):
            quality = run.quality()
            if quality is not None and (warnings := quality.warnings(len(run.job().spec.quality.expectations))):
                page = skew_page(dag_id, run_id, group)
                log.warning("skewless run warns", page=page, dag_id=dag_id, run_id=run_id, facts=warnings)


def report_lateness(**kwargs: Any) -> None:
    """Callback of a ``DeadlineAlert``: logs that a run has missed its deadline.

    As a ``SyncCallback`` it runs in the executor, with the context of the run among its arguments.
    """
    dag_id, run_id = run_of(kwargs["context"])
    log.warning("skewless run is late", dag_id=dag_id, run_id=run_id, page=skew_page(dag_id, run_id))


def failure_facts(dag_id: str, run_id: str) -> dict[str, str]:
    """The address of a failed run's page, and by step the last error of each that failed."""
    facts = {"dag_id": dag_id, "run_id": run_id, "page": skew_page(dag_id, run_id)}
    for group, run in _runs(dag_id, run_id).items():
        for name in sorted(_names(run, "failures"), key=failed_step):
            with contextlib.suppress(SkewlessError):
                if said := run.read(f"failures/{name}", Failure).sentence:
                    facts[f"{group}.{failed_step(name)[0]}".lstrip(".")] = said
    return facts


def _runs(dag_id: str, run_id: str) -> dict[str, RunDirectory]:
    from skewless.run.directory import RunDirectory

    folders = [name.partition("+") for name in _names(RunDirectory(runs_folder()))]
    groups = sorted(group for dag, _, group in folders if dag == dag_id)
    return {group: RunDirectory(run_location(dag_id, run_id, group)) for group in groups}


def _names(run: RunDirectory, folder: str = "") -> list[str]:
    with contextlib.suppress(FileNotFoundError):
        return [str(path).rpartition("/")[2] for path in run.fs.ls(f"{run.root}/{folder}", detail=False)]
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


def emit_stage(run: RunDirectory, report: StageReport, decision: Decision, decided_in_ns: int, dag_id: str) -> None:
    """Send the gauges of a decision, and of the stage before it."""
    times = times_of_step(run, f"stage {report.stage}")
    measured = {
        "skewless.task_count": len(decision.next_plan.tasks) if decision.next_plan is not None else 0,
        "skewless.plan_generation_ns": decided_in_ns,
        "skewless.input_consumption_ns": None if times is None else round(times.seconds * 1e9),
        "skewless.disk_usage": sum(file.size_bytes for file in run.committed(stage_step(report.stage)).files),
        "skewless.processed": report.processed_rows,
        "skewless.backlog": report.backlog_rows,
        "skewless.forwarded": report.forwarded_rows,
        "skewless.max_over_mean": report.max_over_mean,
    }
    _emit(measured, dag_id=dag_id, stage=str(decision.stage))


def emit_result(published: Publication, dag_id: str) -> None:
    """Send the gauges of a published result."""
    measured = {"skewless.published_rows": published.published_rows, "skewless.published_keys": published.keys}
    _emit(measured, dag_id=dag_id)


def _emit(gauges: Mapping[str, float | None], **tags: str) -> None:
    for name, value in gauges.items():
        if value is not None:  # a gauge cannot say "not measured"
            Stats.gauge(name, value, tags=tags)
