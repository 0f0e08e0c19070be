"""Tasks that decide about one stage: the decision, its log and gauges, and a person's approval."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Iterator, Sequence
from typing import Any

import structlog
from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import BaseOperator, Context
from airflow.sdk.exceptions import AirflowSkipException
from airflow.sdk.observability import stats

from skewless.documents.decision import Decision
from skewless.documents.stage_report import StageReport
from skewless.planner.planner import plan_next_stage
from skewless.run.directory import RunDirectory
from skewless.run.step_times import timed_step
from skewless_airflow.observability.links import DecisionLink, SkewReportLink, push_links
from skewless_airflow.operators import end_with_sentence
from skewless_airflow.run_store import run_directory

log = structlog.get_logger(__name__)


class PlanStageOperator(BaseOperator):
    """Decides about one stage, from 1, by the documents of the previous one, and logs the reason."""

    operator_extra_links = (SkewReportLink(), DecisionLink())

    def __init__(self, *, stage: int, group: str = "", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.stage, self.group = stage, group

    def execute(self, context: Context) -> None:
        """Decide, write it down, and skip the stage when it is not needed."""
        push_links(context)
        run = run_directory(context["dag_run"], self.group)
        with end_with_sentence():
            ended = _ended_before(run, self.stage)
            if ended is not None:
                raise AirflowSkipException(f"stage {ended.stage - 1} was the last: {ended.sentence}")
            begun = time.monotonic_ns()
            with timed_step(run, f"decision {self.stage}", time.time):
                report, decision = run.report(self.stage - 1), run.decide(self.stage, plan_next_stage)
            emit(stage_gauges(report, decision, time.monotonic_ns() - begun), self.dag_id, self.stage)
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


class ApproveForwardingOperator(ApprovalOperator):
    """Asks for approval when the plan of a stage forwards more than a fraction of its queued rows.

    At or below that fraction the task succeeds at once. If the answer is no, or there is none within the time limit,
    the task fails and with it the run: nothing is published, and the result that was published before stays.

    Args:
        stage: that the decision is about.
        limit: the fraction of the queued rows, from 0 to 1, up to which no approval is needed.
        group: the name of one aggregation of several in a DAG.
        response_timeout: how long an answer is waited for.
    """

    operator_extra_links = (SkewReportLink(), DecisionLink())

    def __init__(
        self,
        *,
        stage: int,
        limit: float,
        group: str = "",
        response_timeout: dt.timedelta = dt.timedelta(hours=12),
        **kwargs: Any,
    ) -> None:
        asked = {
            "subject": f"May stage {stage} forward more than {limit:.0%} of its rows?",
            "fail_on_reject": True,
            "response_timeout": response_timeout,
            # A retry would ask the same question again; and a person may take longer than a step.
            "retries": 0,
            "execution_timeout": None,
        }
        super().__init__(**{**kwargs, **asked})
        self.stage, self.limit, self.group = stage, limit, group

    def execute(self, context: Context) -> Any:
        """Ask, if the plan forwards more than the limit."""
        push_links(context)
        decision = run_directory(context["dag_run"], self.group).decision(self.stage)
        share = forwarded_share(decision)
        if share <= self.limit:
            log.info("no approval is needed", forwarded=f"{share:.2%}", limit=f"{self.limit:.2%}")
            return None
        self.body = question(decision, share)
        return super().execute(context)


def forwarded_share(decision: Decision) -> float:
    """The fraction of a stage's queued rows that a decision forwards, from 0 to 1; 0 for an observed decision."""
    taken = next((one for one in decision.candidates if one.chosen), None)
    if taken is None or decision.observed or not decision.queued_rows:
        return 0.0
    return taken.forwarded_rows / decision.queued_rows


def question(decision: Decision, share: float) -> str:
    """The question, as text without markup: keys are data, and may hold any."""
    words = (
        f"Stage {decision.stage} has {decision.queued_rows:,} rows queued, and its plan forwards {share:.1%} of them. "
        f"{decision.sentence}. Approve to go on; reject to end the run without publishing."
    )
    # Markdown shows an indented line as it is; a line end in a key would end the indentation.
    return "    " + " ".join(words.split())


def planning_lines(report: StageReport, decision: Decision) -> Iterator[str]:
    """All lines, in Airflow's folding groups."""
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
    observed = ", observed and not enacted" if decision.observed else ""
    yield f"::group::Decision about stage {decision.stage}, policy {decision.policy}{observed}"
    yield decision.sentence
    if decision.next_plan is not None:
        budget, waves = decision.next_plan.budget_rows, ", ".join(map(str, range(*decision.next_plan.waves)))
        yield f"waves: {waves or 'none, the whole input is admitted'}"
        limit = "none, each task reduces all of its rows" if budget is None else f"at most {budget:,} rows per task"
        yield f"budget: {limit}"
    if decision.certificate is not None:
        bound = decision.certificate
        yield (
            f"certificate: largest task {bound.makespan_rows:,.0f} rows, bound {bound.bound_rows:,.0f} rows, "
            f"gap {'not measured' if bound.gap is None else format(bound.gap, '.2%')}; {bound.conclusion}"
        )
    yield "::endgroup::"


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
    """The gauges of a stage and of the decision after it, named after the list of Samza's SEP-32."""
    gauges: dict[str, float] = {
        "skewless.task_count": len(decision.next_plan.tasks) if decision.next_plan is not None else 0,
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
