"""The task that decides about one stage, with the log and the gauges of the decision."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import structlog
from airflow.sdk import BaseOperator, Context
from airflow.sdk.exceptions import AirflowSkipException

from skewless_airflow.observability.links import DecisionLink, SkewReportLink, push_links
from skewless_airflow.operators import end_with_sentence
from skewless_airflow.run_store import run_directory

if TYPE_CHECKING:
    from skewless.documents.decision import Decision
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
        log.info("Decision about stage %s, policy %s: %s", decision.stage, decision.policy, decision.sentence)
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
