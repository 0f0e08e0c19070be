"""A step by Databricks: a one-time job run, which its token starts once."""

from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

from airflow.providers.databricks.hooks.databricks import DatabricksHook
from airflow.providers.databricks.operators.databricks import DatabricksSubmitRunOperator as Operator
from airflow.providers.databricks.triggers.databricks import DatabricksExecutionTrigger
from airflow.sdk import Context
from airflow.triggers.base import BaseTrigger

from skewless.errors import SpecError
from skewless.spec.clusters import SUBMIT
from skewless_airflow.runners.remote import Application

__all__ = ["Operator"]


def arguments(app: Application, fields: dict[str, Any]) -> dict[str, Any]:
    """A Python file with the wheel and what it needs; Spark's settings are those of a cluster of its own."""
    libraries = [
        {"whl": app.packaged(f"skewless-{version('skewless')}-py3-none-any.whl")},
        {"requirements": app.packaged("requirements.txt")},
    ]
    cluster = fields.pop("new_cluster", None)
    if cluster is None and app.conf:
        required = "new_cluster, since an existing cluster keeps its own settings"
        raise SpecError(SUBMIT, f"{required} beside spark.conf", "none")
    task = {
        "task_key": "step", "libraries": [*fields.pop("libraries", ()), *libraries],
        "spark_python_task": {"python_file": app.packaged("steps.py"), "parameters": list(app.arguments)},
    }  # fmt: skip
    if cluster is None:
        task["existing_cluster_id"] = fields.pop("existing_cluster_id", None)
    else:
        task["new_cluster"] = {**cluster, "spark_conf": {**cluster.get("spark_conf", {}), **app.conf}}
    return {
        "tasks": [task], "run_name": app.name, "idempotency_token": app.name, "wait_for_termination": False,
        "deferrable": True,
    }  # fmt: skip


def begin(operator: Any, app: Application, _fields: Mapping[str, Any], context: Context) -> BaseTrigger:
    """Submit the run: its token gives the one that there is."""
    operator.execute(context)
    connection, run = operator.databricks_conn_id, operator.run_id
    page = DatabricksHook(connection).get_run_page_url(run)
    app.link("", page=page)
    return DatabricksExecutionTrigger(run, connection, operator.polling_period_seconds, run_page_url=page)
