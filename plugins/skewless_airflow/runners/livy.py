"""A step by Livy: a batch, whose name is unique while the server remembers it."""

from collections.abc import Mapping
from typing import Any

from airflow.providers.apache.livy.operators.livy import LivyOperator as Operator
from airflow.providers.apache.livy.triggers.livy import LivyTrigger
from airflow.sdk import Context

from skewless_airflow.runners.remote import Application, EndedError

__all__ = ["Operator"]
#: Its trigger says the same of a batch that failed and of a server that did not answer.
SURE = False
_PAGE = 100


class BatchTrigger(LivyTrigger):
    """The provider's, which ends the batch of a task that is stopped."""

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Class and arguments."""
        return f"{__name__}.{type(self).__name__}", super().serialize()[1]

    async def on_kill(self) -> None:
        """End the batch."""
        await self._get_async_hook().run_method(f"batches/{self._batch_id}", "DELETE")


def arguments(app: Application, fields: dict[str, Any]) -> dict[str, Any]:
    """Without an interval the operator submits, and leaves the waiting to us."""
    fields.pop("polling_interval", None)
    archives, python = app.archive("spark.yarn.appMasterEnv.PYSPARK_PYTHON", "spark.executorEnv.PYSPARK_PYTHON")
    return {
        "file": app.entry, "args": list(app.arguments), "conf": {**python, **app.conf}, "name": app.name,
        "archives": [*fields.pop("archives", ()), *archives], "polling_interval": 0, "deferrable": False,
    }  # fmt: skip


def begin(operator: Any, app: Application, fields: Mapping[str, Any], context: Context) -> BatchTrigger:
    """Post the batch, unless there is one of its name."""
    batch = _batch_of(operator.hook, app.name)
    if batch is not None and batch["state"] in {state.value for state in operator.hook.TERMINAL_STATES}:
        raise EndedError
    batch = batch or operator.hook.get_batch(operator.execute(context))
    if batch.get("appId"):
        app.link(batch["appId"])
    return BatchTrigger(
        batch_id=batch["id"],
        spark_params=operator.spark_params,
        livy_conn_id=fields.get("livy_conn_id", "livy_default"),
        polling_interval=fields.get("polling_interval", 10),
        extra_options=fields.get("extra_options"),
        extra_headers=fields.get("extra_headers"),
        execution_timeout=operator.execution_timeout,
        endpoint_prefix=fields.get("livy_endpoint_prefix"),
    )


def _batch_of(hook: Any, name: str) -> dict[str, Any] | None:
    found, start = None, 0
    while True:
        answer = hook.run_method(
            f"{hook.endpoint_prefix}/batches?from={start}&size={_PAGE}", headers=hook.extra_headers
        )
        answer.raise_for_status()
        batches = answer.json()["sessions"]
        found = next((batch for batch in reversed(batches) if batch.get("name") == name), found)
        if len(batches) < _PAGE:
            return found
        start += _PAGE
