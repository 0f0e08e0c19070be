"""The task that asks a person about the plan of a stage: imported only where a spec wants it."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import structlog
from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import Context

from skewless_airflow.observability.links import DecisionLink, SkewReportLink, push_links
from skewless_airflow.operators import end_with_sentence
from skewless_airflow.run_store import run_directory

if TYPE_CHECKING:
    from skewless.documents.decision import Decision

log = structlog.get_logger(__name__)


class ApproveForwardingOperator(ApprovalOperator):
    """Asks for approval when the plan of a stage forwards more than a fraction of its queued rows.

    At or below that fraction the task succeeds at once. If the answer is no, or there is none within the time limit,
    the task fails and with it the run: nothing is published, and the result that was published before stays.

    Args:
        limit: the fraction of the queued rows, from 0 to 1, up to which no approval is needed.
        group: the name of one aggregation of several in a DAG.
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
        with end_with_sentence(context, self.group):
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
