"""The task that decides about one stage, with the log and the gauges of the decision."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import structlog
from airflow.sdk import BaseOperator, Context
from airflow.sdk.exceptions import AirflowSkipException

from skewless_airflow.observability.links import DecisionLink, SkewReportLink, push_links
from skewless_airflow.operators import end_with_sentence
from skewless_airflow.run_store import run_directory

if TYPE_CHECKING:
    from skewless.documents.decision import Decision
    from skewless.documents.stage_report import StageReport
    from skewless.run.directory import RunDirectory

log = structlog.get_logger(__name__)


class PlanStageOperator(BaseOperator):
    """Decides about one stage, from 1, by the documents of the previous one, and logs the reason."""

    operator_extra_links = (SkewReportLink(), DecisionLink())

    def __init__(self, *, stage: int, group: str = "", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.stage, self.group = stage, group

    def execute(self, context: Context) -> None:
        """Decide, write it down, and skip the stage when it is not needed."""
        from skewless.planner.planner import plan_next_stage
        from skewless.run.step_times import timed_step
        from skewless_airflow.observability.metrics import emit_stage

        push_links(context)
        with end_with_sentence(context, self.group):
            run = run_directory(context["dag_run"], self.group)
            ended = _ended_before(run, self.stage)
            if ended is not None:
                raise AirflowSkipException(f"stage {ended.stage - 1} was the last: {ended.sentence}")
            begun = time.monotonic_ns()
            with timed_step(run, f"decision {self.stage}", time.time):
                report, decision = run.report(self.stage - 1), run.decide(self.stage, plan_next_stage)
            emit_stage(run, report, decision, time.monotonic_ns() - begun, self.dag_id)
        for line in planning_lines(report, decision):
            log.info(line)
        if decision.next_plan is None:
            raise AirflowSkipException(decision.sentence)


def _ended_before(run: RunDirectory, stage: int) -> Decision | None:
    """The decision before ``stage`` by which no further stage was needed, if there is one."""
    for earlier in range(1, stage):
        if not run.exists(f"decisions/{earlier:04d}.json"):
            return None
        decision = run.decision(earlier)
        if decision.next_plan is None:
            return decision
    return None


def planning_lines(report: StageReport, decision: Decision) -> Iterator[str]:
    """All lines, in Airflow's folding groups; the last one, the decision itself, is in none."""
    yield f"::group::Backlog of stage {report.stage}, {report.backlog_rows:,} rows in {len(report.tasks)} tasks"
    loads = [
        (load.task, f"{load.queued_rows:,}", f"{load.processed_rows:,}", f"{load.backlog_rows:,}", f"{load.states:,}")
        for load in report.tasks
    ]
    yield from _table(("task", "queued", "processed", "backlog", "states"), loads)
    yield "::endgroup::"
    if decision.candidates:
        yield f"::group::Candidates for stage {decision.stage}, {decision.queued_rows:,} rows queued"
        yield from _candidates(decision)
        yield "::endgroup::"
    if details := list(_details(decision)):
        yield f"::group::Plan of stage {decision.stage}"
        yield from details
        yield "::endgroup::"
    yield f"Decision about stage {decision.stage}, policy {decision.policy}: {decision.sentence}"


def _details(decision: Decision) -> Iterator[str]:
    if decision.next_plan is not None:
        budget, waves = decision.next_plan.budget_rows, ", ".join(map(str, range(*decision.next_plan.waves)))
        yield f"waves: {waves or 'none, the whole input is admitted'}"
        limit = "none, each task reduces all of its rows" if budget is None else f"at most {budget:,} rows per task"
        yield f"budget: {limit}"
    if decision.certificate is not None:
        bound = decision.certificate
        yield (
            f"balance: largest task {bound.makespan_rows:,.0f} rows, bound {bound.bound_rows:,.0f} rows, "
            f"gap {'not measured' if bound.gap is None else format(bound.gap, '.2%')}; {bound.conclusion}"
        )


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
