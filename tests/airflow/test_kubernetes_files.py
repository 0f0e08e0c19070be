"""The files for Kubernetes follow the schemas of Kubernetes, say the same as each other, and hold no secret."""

from __future__ import annotations

import importlib.util
import json
import re
from typing import Any

import pytest
import yaml

from deploy import PROJECT

FOLDER = PROJECT / "deploy" / "kubernetes"
#: Of Kubernetes.
VERSION = "1.31"


def read(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((FOLDER / name).read_text())
    return found


def check(resource: dict[str, Any]) -> None:
    if importlib.util.find_spec("kubernetes_validate") is None:
        pytest.fail("kubernetes-validate is missing: make setup-tests installs it")
    import kubernetes_validate

    kubernetes_validate.validate(resource, VERSION, strict=True)


@pytest.mark.parametrize("name", ["task_pod.yaml", "spark_pod.yaml"])
def test_a_pod_template_is_a_pod(name: str) -> None:
    pod = read(name)
    check(pod if name == "task_pod.yaml" else with_image(pod))


def with_image(pod: dict[str, Any]) -> dict[str, Any]:
    (container,) = pod["spec"]["containers"]
    return {**pod, "spec": {**pod["spec"], "containers": [{**container, "image": "spark"}]}}


def test_what_the_chart_puts_into_containers_is_what_kubernetes_takes() -> None:
    values = read("values.yaml")
    (container,) = (pod := read("task_pod.yaml"))["spec"]["containers"]
    for workers in (values["workers"]["celery"], values["workers"]["kubernetes"]):
        container["resources"] = workers["resources"]
        container["env"], container["envFrom"] = values["env"], yaml.safe_load(values["extraEnvFrom"])
        check(pod)


def test_a_task_has_the_same_settings_with_the_chart_and_without() -> None:
    values = read("values.yaml")
    (container,) = read("task_pod.yaml")["spec"]["containers"]
    chart = {one["name"]: one["value"] for one in values["env"]}
    for section, settings in values["config"].items():
        chart |= {f"AIRFLOW__{section}__{name}".upper(): value for name, value in settings.items()}
    chart["AIRFLOW_HOME"] = values["airflowHome"]
    plain = {one["name"]: one["value"] for one in container["env"] if "value" in one}
    assert {name: value for name, value in plain.items() if chart.get(name) != value}.keys() == {
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL"  # the chart writes it itself
    }
    assert container["envFrom"] == yaml.safe_load(values["extraEnvFrom"])
    assert container["image"] == ":".join(values["images"]["airflow"].values())


def test_nothing_of_a_run_is_kept_on_a_volume() -> None:
    values = read("values.yaml")
    kept = [values["logs"], values["triggerer"], values["workers"]["celery"]]
    assert [one["persistence"]["enabled"] for one in kept] == [False] * 3
    env = {one["name"]: one["value"] for one in values["env"]}
    assert env["SKEWLESS_ROOT"].startswith("s3://")
    assert values["config"]["logging"]["remote_base_log_folder"].startswith("s3://")
    assert {volume["name"]: "emptyDir" in volume for volume in read("task_pod.yaml")["spec"]["volumes"]} == {
        "scratch": True
    }


def test_no_file_has_a_secret_and_the_chart_makes_no_user_with_a_known_password() -> None:
    values = read("values.yaml")
    assert values["createUserJob"] == {"enabled": False}
    for file in FOLDER.iterdir():
        found = json.dumps(read(file.name))
        assert not re.search(r"://[^/\"]*:[^/\"]*@|AWS_SECRET_ACCESS_KEY|password\"", found), file.name
    assert set(values["data"]) == {"metadataSecretName", "brokerUrlSecretName", "resultBackendSecretName"}
