"""A step by the Spark Operator on Kubernetes: a SparkApplication, found by its name and its driver by labels.

Until the driver's pod runs the operator waits in the worker; then it defers.
"""

import copy
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
    """Create the SparkApplication, or find its driver."""
    driver = operator.find_spark_job(context)
    try:
        found = operator.custom_obj_api.get_namespaced_custom_object(
            **_KIND, namespace=operator.namespace, name=app.name
        )
    except ApiException as err:
        if err.status != 404:  # HTTP's for what is not there
            raise
    else:
        if found.get("status", {}).get("applicationState", {}).get("state") in _ENDED:
            raise EndedError
        if driver is None:
            raise AirflowException(f"{app.name} is submitted, and its driver has not started yet")
    operator.execute(context)
    raise AirflowException(f"{app.name}: the operator has not deferred")
