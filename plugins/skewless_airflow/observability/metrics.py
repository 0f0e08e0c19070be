"""Gauges of runs, sent where Airflow sends its own: to StatsD or OpenTelemetry (docs/operate.md).

Their names of stages follow the list of Samza's SEP-32, as far as a batch has what it lists. What SEP-32 measures for
each message (the hash of its key, reads and writes of a store) is part of a Spark task here, and is not told apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from airflow.sdk.observability.stats import Stats

from skewless.run.step_names import stage_step
from skewless.run.step_times import times_of_step

if TYPE_CHECKING:
    from skewless.documents.stage_report import Decision, StageReport
    from skewless.publication.records import Publication
    from skewless.run.directory import RunDirectory


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
