"""A step by EMR Serverless: a job run, found by its name, and started once by its client token."""

import shlex
from collections.abc import Mapping
from typing import Any

from airflow.providers.amazon.aws.operators.emr import EmrServerlessStartJobOperator
from airflow.providers.amazon.aws.triggers.emr import EmrServerlessStartJobTrigger
from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowException
from airflow.triggers.base import BaseTrigger

from skewless_airflow.runners.remote import Application, EndedError

#: Its trigger says the same of a run that failed and of a server that did not answer.
SURE = False
_DRIVER = "spark.emr-serverless.driverEnv"
_PYTHON = (f"{_DRIVER}.PYSPARK_DRIVER_PYTHON", f"{_DRIVER}.PYSPARK_PYTHON", "spark.executorEnv.PYSPARK_PYTHON")
#: What its trigger has of the operator.
_OF_BOTH = (
    "application_id", "waiter_delay", "waiter_max_attempts", "aws_conn_id", "cancel_on_kill", "region_name", "verify",
    "botocore_config",
)  # fmt: skip


class Operator(EmrServerlessStartJobOperator):
    """The provider's, which would look for details that the event of a failure lacks."""

    def execute_complete(self, context: Context, event: dict[str, Any] | None = None) -> None:  # noqa: ARG002  # as there
        """Take what the trigger says."""
        if event and event["status"] != "success":
            raise AirflowException(event["message"])


def arguments(app: Application, fields: dict[str, Any]) -> dict[str, Any]:
    """The operator starts the run, and leaves the waiting to us: its own limit would be 25 minutes."""
    archives, python = app.archive(*_PYTHON)
    words = [word for archive in archives for word in ("--archives", archive)]
    words += [word for name, value in {**python, **app.conf}.items() for word in ("--conf", f"{name}={value}")]
    entry = {"entryPoint": app.packaged("steps.py"), "entryPointArguments": list(app.arguments)}
    delay = int(fields.pop("waiter_delay", 30))
    return {
        "job_driver": {"sparkSubmit": {**entry, "sparkSubmitParameters": shlex.join(words)}},
        "name": app.name, "client_request_token": app.name, "wait_for_completion": False, "deferrable": True,
        "waiter_delay": delay, "waiter_max_attempts": fields.pop("waiter_max_attempts", int(app.seconds / delay)),
    }  # fmt: skip


def begin(operator: Any, app: Application, _fields: Mapping[str, Any], context: Context) -> BaseTrigger:
    """Start the job run, unless there is one of its name."""
    pages = operator.hook.conn.get_paginator("list_job_runs").paginate(applicationId=operator.application_id)
    run = next((run for page in pages for run in page["jobRuns"] if run.get("name") == app.name), None)
    if run is not None and run["state"] in operator.hook.JOB_TERMINAL_STATES:
        raise EndedError
    job = operator.execute(context) if run is None else run["id"]
    return EmrServerlessStartJobTrigger(job_id=job, **{name: getattr(operator, name) for name in _OF_BOTH})
