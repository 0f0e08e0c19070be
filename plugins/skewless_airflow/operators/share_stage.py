"""A task that takes part in a stage beside those of other clusters."""

from __future__ import annotations

from typing import Any

import structlog
from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowException, AirflowSkipException

from skewless.run.directory import stage_step
from skewless_airflow.operators.spark_step import SkewlessSparkOperator
from skewless_airflow.run_store import run_directory

log = structlog.get_logger(__name__)


class ShareStageOperator(SkewlessSparkOperator):
    """Takes part in a stage beside other clusters, which may finish it without this one.

    What counts is the stage's commit, whichever cluster made it. A cluster that cannot be reached, or that dies,
    leaves the stage to the others: the task of a further cluster is then skipped, that of the first one is tried again
    until the stage has committed.

    Args:
        stage: its number.
        further: whether this is not the first cluster, so that the stage can do without it.
    """

    def __init__(self, *, stage: int, further: bool, conn_id: str = "spark_default", **kwargs: Any) -> None:
        super().__init__(
            entry="share_stage.py",
            step=stage_step(stage),
            entry_args=("--stage", str(stage), "--cluster", conn_id),
            conn_id=conn_id,
            **kwargs,
        )
        self.stage, self.further, self.cluster = stage, further, conn_id

    def execute(self, context: Context) -> None:
        """Run it; if this cluster fails, a commit of the others counts."""
        try:
            super().execute(context)
        except AirflowException as err:
            if self.further:
                raise AirflowSkipException(f"cluster {self.cluster} left the stage to the others: {err}") from None
            if not run_directory(context["dag_run"], self.group).exists(f"{self.step}/COMMIT.json"):
                raise
            log.warning("the other clusters finished the stage without this one", cluster=self.cluster, reason=str(err))
