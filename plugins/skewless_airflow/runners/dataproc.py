"""A step by Dataproc: a batch, whose id is its name."""

from collections.abc import Mapping
from typing import Any

from airflow.sdk import Context
from airflow.triggers.base import BaseTrigger

from skewless_airflow.runners.remote import Application

OPERATOR = "airflow.providers.google.cloud.operators.dataproc:DataprocCreateBatchOperator"


def arguments(app: Application, fields: dict[str, Any]) -> dict[str, Any]:
    """The spec's batch with the entry; the operator creates it, and leaves the waiting to us."""
    archives, python = app.archive("spark.dataproc.driverEnv.PYSPARK_PYTHON", "spark.executorEnv.PYSPARK_PYTHON")
    batch = fields.pop("batch", {})
    runtime = batch.get("runtime_config", {})
    entry = {"main_python_file_uri": app.packaged("steps.py"), "args": list(app.arguments), "archive_uris": archives}
    properties = {**runtime.get("properties", {}), **python, **app.conf}
    return {
        "batch": {**batch, "pyspark_batch": entry, "runtime_config": {**runtime, "properties": properties}},
        "batch_id": app.name, "asynchronous": True, "deferrable": False,
    }  # fmt: skip


def begin(operator: Any, app: Application, _fields: Mapping[str, Any], context: Context) -> BaseTrigger:
    """Create the batch; the operator takes the one that there is."""
    from airflow.providers.google.cloud.triggers.dataproc import DataprocBatchTrigger

    operator.execute(context)
    names = ("project_id", "region", "gcp_conn_id", "impersonation_chain", "polling_interval_seconds")
    return DataprocBatchTrigger(app.name, **{name: getattr(operator, name) for name in names})
