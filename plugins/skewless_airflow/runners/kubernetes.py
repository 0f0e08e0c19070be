"""A step by the Spark Operator on Kubernetes: a SparkApplication, found by its name and its driver by labels.

Until the driver's pod runs the operator waits in the worker; then it defers.
"""

import copy
import time
from collections.abc import Mapping
from typing import Any

from airflow.providers.cncf.kubernetes.operators.spark_kubernetes import SparkKubernetesOperator as Operator
from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowException
from airflow.triggers.base import BaseTrigger
from kubernetes.client.exceptions import ApiException

from skewless_airflow.runners.remote import Application, EndedError

__all__ = ["Operator"]
_KIND = {"group": "sparkoperator.k8s.io", "version": "v1beta2", "plural": "sparkapplications"}
_ENDED = {"COMPLETED", "FAILED"}
_POLL_SECONDS = 10.0


def arguments(app: Application, fields: dict[str, Any]) -> dict[str, Any]:
    """The spec's template with the entry, which is in the image; who tries again is Airflow."""
    template = copy.deepcopy(fields.pop("template_spec", {}))
    body = template.get("spark", template)
    spec = body.get("spec", {})
    body |= {"apiVersion": f"{_KIND['group']}/{_KIND['version']}", "kind": "SparkApplication"}
    body["spec"] = {
        "pythonVersion": "3", "mode": "cluster", **spec, "type": "Python", "restartPolicy": {"type": "Never"},
        "mainApplicationFile": app.entry, "arguments": list(app.arguments),
        "sparkConf": {**spec.get("sparkConf", {}), **app.conf},
    }  # fmt: skip
    return {"template_spec": template, "name": app.name, "random_name_suffix": False, "deferrable": True}


def begin(operator: Any, app: Application, _fields: Mapping[str, Any], context: Context) -> BaseTrigger:
    """Create the SparkApplication, or find it and its driver, for which a try waits as the operator does."""
    until = time.monotonic() + operator.startup_timeout_seconds
    while True:
        driver, state = operator.find_spark_job(context), _state_of(operator, app.name)
        if state in _ENDED:
            raise EndedError
        if state is None or driver is not None:
            operator.execute(context)
            raise AirflowException(f"{app.name}: the operator has not deferred")
        if time.monotonic() > until:
            seconds = operator.startup_timeout_seconds
            raise AirflowException(f"{app.name} is submitted, and its driver has not started within {seconds} s")
        time.sleep(_POLL_SECONDS)


def _state_of(operator: Any, name: str) -> str | None:
    try:
        found = operator.custom_obj_api.get_namespaced_custom_object(**_KIND, namespace=operator.namespace, name=name)
    except ApiException as err:
        if err.status != 404:  # HTTP's for what is not there
            raise
        return None
    return str(found.get("status", {}).get("applicationState", {}).get("state", ""))
