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
    """Takes part in a stage beside other clusters, who may end it without this one.

    What counts is the stage's commit, whoever made it. A cluster that cannot be reached, or that dies, leaves the
    stage to the others: its task is skipped, where it is a further one, or else tried again until the stage has ended.

    Args:
        stage: its number.
        further: whether the stage can do without it from the beginning.
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
        """Run it; what the others have made of the stage stands."""
        try:
            super().execute(context)
        except AirflowException as err:
            if self.further:
                raise AirflowSkipException(f"cluster {self.cluster} left the stage to the others: {err}") from None
            if not run_directory(context["dag_run"], self.group).exists(f"{self.step}/COMMIT.json"):
                raise
            log.warning("the other clusters ended the stage without this one", cluster=self.cluster, reason=str(err))
