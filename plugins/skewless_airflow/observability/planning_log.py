"""A decision as lines of a task log, and as gauges by StatsD or OpenTelemetry, whichever Airflow is set up for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from airflow.sdk.observability import stats

from skewless.documents.decision import Decision
from skewless.documents.stage_report import StageReport


def planning_lines(report: StageReport, decision: Decision) -> Iterator[str]:
    """All lines, in Airflow's folding groups."""
    yield f"::group::Backlog of stage {report.stage}, {report.backlog_rows:,} rows in {len(report.tasks)} tasks"
    yield from _backlog(report)
    yield "::endgroup::"
    if decision.candidates:
        yield f"::group::Candidates for stage {decision.stage}, {decision.queued_rows:,} rows queued"
        yield from _candidates(decision)
        yield "::endgroup::"
    observed = ", observed and not enacted" if decision.observed else ""
    yield f"::group::Decision about stage {decision.stage}, policy {decision.policy}{observed}"
    yield decision.sentence
    if decision.next_plan is not None:
        budget = decision.next_plan.budget_rows
        first, end = decision.next_plan.waves
        yield (
            f"waves: {', '.join(map(str, range(first, end)))}"
            if end > first
            else "waves: none, the whole input is admitted"
        )
        yield (
            "budget: none, each task reduces all of its rows"
            if budget is None
            else f"budget: at most {budget:,} rows per task"
        )
    if decision.certificate is not None:
        bound = decision.certificate
        yield (
            f"certificate: largest task {bound.makespan_rows:,.0f} rows, bound {bound.bound_rows:,.0f} rows, "
            f"gap {'not measured' if bound.gap is None else format(bound.gap, '.2%')}; {bound.conclusion}"
        )
    yield "::endgroup::"


def _backlog(report: StageReport) -> Iterator[str]:
    rows = [
        (load.task, f"{load.queued_rows:,}", f"{load.processed_rows:,}", f"{load.backlog_rows:,}", f"{load.states:,}")
        for load in report.tasks
    ]
    yield from _table(("task", "queued", "processed", "backlog", "states"), rows)


def _candidates(decision: Decision) -> Iterator[str]:
    rows = [
        (
            ("> " if one.chosen else "  ") + one.action,
            f"{one.makespan_rows:,.0f}",
            f"{one.forwarded_rows:,.0f}",
            f"{one.pieces:,}",
            f"{one.cost_rows:,.0f}",
            one.sentence,
        )
        for one in decision.candidates
    ]
    yield from _table(("  action", "makespan", "forwarded", "pieces", "cost", "why"), rows, texts=(0, 5))


def _table(header: Sequence[str], rows: Sequence[Sequence[str]], texts: Sequence[int] = (0,)) -> Iterator[str]:
    """Aligned columns; those in ``texts`` are aligned to the left, all others to the right."""
    widths = [max(len(row[column]) for row in (header, *rows)) for column in range(len(header))]
    for row in (header, *rows):
        cells = [
            cell.ljust(width) if column in texts else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  ".join(cells).rstrip()


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
