"""A task that finds the parts before that of a run which nobody has computed, so that they are caught up."""

from __future__ import annotations

from typing import Any

import structlog
from airflow.sdk import BaseOperator, Context

from skewless.documents.job import Job
from skewless.spec.part import Part
from skewless_airflow.operators.ending import end_with_sentence
from skewless_airflow.run_store import run_directory
from skewless_airflow.trigger_form import DATE, HOUR

log = structlog.get_logger(__name__)


class FindSkippedOperator(BaseOperator):
    """Returns the id and the conf of a run of the job's DAG for each part that is to be caught up, oldest first.

    Only a run of the schedule catches up: one that somebody triggered, for a day, a range, or to catch up, computes
    just what it was asked for. An id is that of its part, so that no run is triggered twice.
    """

    def execute(self, context: Context) -> list[dict[str, Any]]:
        """Read what ``prepare`` has found."""
        dag_run = context["dag_run"]
        if dag_run.run_type == "backfill" or DATE in (dag_run.conf or {}):
            return []
        with end_with_sentence():
            found = run_directory(dag_run).read("job.json", Job).caught_up
        for part in found:
            log.info("nobody has computed this part: it is caught up", part=str(part))
        return [_run_of(part) for part in found]


def _run_of(part: Part) -> dict[str, Any]:
    conf = {DATE: str(part.date), **({HOUR: part.hour} if part.hour else {})}
    return {"trigger_run_id": f"catch_up__{part.name}", "conf": conf}
