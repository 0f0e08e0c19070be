"""A step by Dataproc: a batch, whose id is its name."""

from collections.abc import Mapping
from typing import Any

from airflow.providers.google.cloud.links.dataproc import DATAPROC_BATCH_LINK
from airflow.providers.google.cloud.operators.dataproc import DataprocCreateBatchOperator as Operator
from airflow.providers.google.cloud.triggers.dataproc import DataprocBatchTrigger
from airflow.sdk import Context

from skewless_airflow.runners.remote import Application

__all__ = ["Operator"]


class BatchTrigger(DataprocBatchTrigger):
    """The provider's, which ends the batch of a task that is stopped."""

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Class and arguments."""
        return f"{__name__}.{type(self).__name__}", super().serialize()[1]

    async def on_kill(self) -> None:
        """Cancel the batch, by its operation."""
        hook = self.get_async_hook()
        batch = await hook.get_batch(batch_id=self.batch_id, region=self.region, project_id=self.project_id)
        client = await hook.get_batch_client(self.region)
        await client.transport.operations_client.cancel_operation(batch.operation)


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


def begin(operator: Any, app: Application, _fields: Mapping[str, Any], context: Context) -> BatchTrigger:
    """Create the batch; the operator takes the one that there is."""
    operator.execute(context)
    place = {"region": operator.region, "project_id": operator.project_id, "batch_id": app.name}
    app.link("", page=DATAPROC_BATCH_LINK.format(**place))
    names = ("project_id", "region", "gcp_conn_id", "impersonation_chain", "polling_interval_seconds")
    return BatchTrigger(app.name, **{name: getattr(operator, name) for name in names})
