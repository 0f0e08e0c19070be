"""Who runs a Spark step: a module for each way, of which the step's Airflow connection chooses one."""

from __future__ import annotations

from skewless.errors import SpecError
from skewless_airflow.runners import on_one_machine as warm_driver
from skewless_airflow.runners import submit
from skewless_airflow.runners.step import Step, StepRunner, Target

__all__ = ["Step", "StepRunner", "Target", "runner_of"]


def runner_of(step: Step) -> StepRunner:
    """The runner of a step.

    Raises:
        SpecError: its connection is for Spark Connect, or has a deploy mode that cannot be.
    """
    if step.target.master.startswith("spark_connect:"):
        hint = "make its type spark, and its host the master of the cluster, or local[*]"
        raise SpecError(step.target.where, "the type spark, by which steps are submitted", "spark_connect", hint)
    return (None if step.target.on_cluster else warm_driver.runner_of(step)) or submit.runner_of(step)
