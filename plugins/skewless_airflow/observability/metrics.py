"""Figures of a stage as Airflow metrics, by StatsD or OpenTelemetry, whichever Airflow is set up for."""

from __future__ import annotations

from airflow.sdk.observability import stats

from skewless.documents.decision import Decision
from skewless.documents.stage_report import StageReport


def stage_gauges(report: StageReport, decision: Decision, plan_generation_ns: int) -> dict[str, float]:
    """The gauges of a stage and of the decision after it, named after the list of Samza's SEP-32.

    Args:
        report: of the stage.
        decision: about the stage after it.
        plan_generation_ns: how long the decision took, in nanoseconds.
    """
    tasks = len(decision.next_plan.tasks) if decision.next_plan is not None else 0
    gauges: dict[str, float] = {
        "skewless.task_count": tasks,
        "skewless.plan_generation_ns": plan_generation_ns,
        "skewless.backlog": report.backlog_rows,
        "skewless.forwarded": report.forwarded_rows,
    }
    # A gauge cannot say "not measured", so such a figure is not sent.
    return gauges if report.max_over_mean is None else {**gauges, "skewless.max_over_mean": report.max_over_mean}


def emit(gauges: dict[str, float], dag_id: str, stage: int) -> None:
    """Send gauges, told apart by DAG and stage where the metrics system has tags."""
    for name, value in gauges.items():
        stats.gauge(name, value, tags={"dag_id": dag_id, "stage": str(stage)})
