"""Who runs a Spark step: a module for each way, which the spec's ``spark.submit`` names, or the Airflow connection."""

from skewless.errors import SpecError
from skewless.spec.clusters import SUBMIT
from skewless_airflow.runners.on_one_machine import SubmittedStep, warm_step
from skewless_airflow.runners.remote import RemoteStep, remote_of, spark_submit_fields
from skewless_airflow.runners.step import Step, StepRunner, master_of

__all__ = ["RemoteStep", "Step", "StepRunner", "master_of", "remote_of", "runner_of", "spark_submit_fields"]


def runner_of(step: Step) -> StepRunner:
    """The runner of a step that a connection to Spark is for.

    Raises:
        SpecError: its connection is for Spark Connect, or has drivers run on a cluster.
    """
    where = f"connection {step.conn_id}"
    if step.master.startswith("spark_connect:"):
        hint = "make its type spark, and its host the master of the cluster, or local[*]"
        raise SpecError(where, "the type spark, by which steps are submitted", "spark_connect", hint)
    if step.deploy_mode == "cluster":
        hint = f"leave it out, or write {SUBMIT}: {{runner: yarn}}, or kubernetes, in the spec"
        raise SpecError(where, "the deploy mode client", f"'cluster' for {step.master}", hint)
    return warm_step(step) or SubmittedStep(step)
