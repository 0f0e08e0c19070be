"""A step by spark-submit whose driver runs on YARN: an application, found by its tag by the resource manager's REST.

It is longer than the others, as the provider has neither an operator that does not wait nor a trigger.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from functools import partial
from typing import Any

import requests
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import BaseHook, Context
from airflow.sdk.exceptions import AirflowException
from airflow.triggers.base import BaseTrigger, TriggerEvent

from skewless.errors import SpecError
from skewless.spec.clusters import DEFAULT_CONNECTION
from skewless_airflow.run_store import spark_entry
from skewless_airflow.runners.process_session import end_with_parent
from skewless_airflow.runners.remote import Application, EndedError

SERVER = "yarn_resourcemanager_webapp_address"
_APPS, _ENDED = "/ws/v1/cluster/apps", {"FINISHED", "FAILED", "KILLED"}
_POLL_SECONDS, _ANSWER_SECONDS = 10.0, 60.0


class Operator(SparkSubmitOperator):
    """The provider's, which submits and does not wait."""

    def execute(self, context: Context) -> None:
        """Submit, unless the task ends: nothing is submitted beside its next try."""
        self._hook = self._get_hook()
        self._hook.submit = partial(self._hook.submit, preexec_fn=end_with_parent)  # type: ignore[method-assign]
        try:
            super().execute(context)
        finally:
            if process := self._hook._submit_sp:  # noqa: SLF001  # the provider leaves its pipe open
                process.stdout.close()

    def execute_complete(self, context: Context, event: Mapping[str, Any]) -> None:  # noqa: ARG002  # as of others
        """Take what the resource manager says of an application that has ended."""
        if event["finalStatus"] != "SUCCEEDED":
            raise AirflowException(f"application {event['id']} ended as {event['finalStatus']}: {event['diagnostics']}")


class YarnTrigger(BaseTrigger):
    """Waits for the end of an application, and ends it with a task that is stopped."""

    def __init__(self, server: str, tag: str) -> None:
        super().__init__()
        self.server, self.tag = server, tag

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Class and arguments."""
        return f"{__name__}.YarnTrigger", {"server": self.server, "tag": self.tag}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Ask until the application has ended."""
        while True:
            found = await asyncio.to_thread(_application, self.server, self.tag)
            if found is not None and not _runs(found):
                yield TriggerEvent({name: found.get(name, "") for name in ("id", "finalStatus", "diagnostics")})
                return
            await asyncio.sleep(_POLL_SECONDS)

    async def on_kill(self) -> None:
        """End the application."""
        if (found := await asyncio.to_thread(_application, self.server, self.tag)) is not None:
            address = f"{self.server}{_APPS}/{found['id']}/state"
            await asyncio.to_thread(requests.put, address, json={"state": "KILLED"}, timeout=_ANSWER_SECONDS)


def arguments(app: Application, fields: dict[str, Any]) -> dict[str, Any]:
    """The options of spark-submit, which ends once it has submitted."""
    archives, python = app.archive("spark.yarn.appMasterEnv.PYSPARK_PYTHON", "spark.executorEnv.PYSPARK_PYTHON")
    own = {"spark.yarn.tags": app.name, "spark.yarn.submit.waitAppCompletion": "false"}
    return {
        "application": app.entry if app.package else str(spark_entry("pipeline.py")),
        "application_args": list(app.arguments), "name": app.name, "deploy_mode": "cluster", "durable": False,
        "archives": ",".join([*filter(None, [fields.pop("archives", "")]), *archives]) or None,
        "conf": {**python, **app.conf, **own},
    }  # fmt: skip


def begin(operator: Any, app: Application, fields: Mapping[str, Any], context: Context) -> BaseTrigger:
    """Submit the application, unless there is one of its tag."""
    name = fields.get("conn_id", DEFAULT_CONNECTION)
    if not (server := BaseHook.get_connection(name).extra_dejson.get(SERVER, "").rstrip("/")):
        hint = "write the address of the resource manager, like http://rm:8088"
        raise SpecError(f"connection {name}, extra", f"{SERVER}, by which drivers are followed", "none", hint)
    if (found := _application(server, app.name)) is None:
        operator.execute(context)
        found = _application(server, app.name)
    elif not _runs(found):
        raise EndedError
    if found is not None:
        app.link(str(found["id"]))
    return YarnTrigger(server, app.name)


def _application(server: str, tag: str) -> dict[str, Any] | None:
    answer = requests.get(f"{server}{_APPS}", params={"applicationTags": tag}, timeout=_ANSWER_SECONDS)
    answer.raise_for_status()
    found = (answer.json()["apps"] or {}).get("app", [])
    return max(found, key=lambda one: str(one["id"]), default=None)


def _runs(application: Mapping[str, Any]) -> bool:
    return application["state"] not in _ENDED
