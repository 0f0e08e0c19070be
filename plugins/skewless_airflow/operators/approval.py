"""A decision that would forward much waits until somebody has looked at it."""

from __future__ import annotations

import datetime as dt
from typing import Any

import structlog
from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import Context

from skewless.documents.decision import Decision
from skewless.run.directory import RunDirectory
from skewless_airflow.observability.links import DecisionLink, SkewReportLink, push_links
from skewless_airflow.run_store import run_location

log = structlog.get_logger(__name__)


class ApproveForwardingOperator(ApprovalOperator):
    """Asks before a stage is routed by a plan that forwards more than a part of its queued rows.

    Below that it is done at once. Rejected, the task and with it the run fail: nothing is published, and the
    result that was published before stays. Nobody's answer within the time limit is a failure too.

    Args:
        stage: the stage that the decision is about.
        limit: the part of the queued rows, from 0 to 1, up to which nobody is asked.
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
            # Asked again is not answered better; and the time limit of a step is not that of a person.
            "retries": 0,
            "execution_timeout": None,
        }
        super().__init__(**{**kwargs, **asked})
        self.stage = stage
        self.limit = limit
        self.group = group

    def execute(self, context: Context) -> Any:
        """Ask, if there is something to ask."""
        push_links(context)
        dag_run = context["dag_run"]
        decision = RunDirectory(run_location(dag_run.dag_id, dag_run.run_id, self.group)).decision(self.stage)
        share = forwarded_share(decision)
        if share <= self.limit:
            log.info("nobody needs to be asked", forwarded=f"{share:.2%}", limit=f"{self.limit:.2%}")
            return None
        self.body = question(decision, share)
        return super().execute(context)


def forwarded_share(decision: Decision) -> float:
    """The part of a stage's queued rows that a decision forwards; an observed decision forwards none."""
    taken = next((one for one in decision.candidates if one.chosen), None)
    if taken is None or decision.observed or not decision.queued_rows:
        return 0.0
    return taken.forwarded_rows / decision.queued_rows


def question(decision: Decision, share: float) -> str:
    """What somebody is to decide about, as text without markup: keys are data."""
    words = (
        f"Stage {decision.stage} has {decision.queued_rows:,} rows queued, and its plan forwards {share:.1%} of them. "
        f"{decision.sentence}. Approve to go on; reject to end the run without publishing."
    )
    # Indented, markdown shows text as it is; a line end in a key would end that.
    return "    " + " ".join(words.split())
