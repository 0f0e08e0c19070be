"""The files for Docker Compose and Kubernetes are sound, hold no secret, and are what cluster tests start."""

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography.fernet import Fernet

from deploy import PROJECT
from tests.cluster.composition import ClusterError, read_composition
from tests.cluster.running import IMAGE_ENVIRONMENT

COMPOSE_FILE = PROJECT / "docker-compose.yml"
DOCKERFILE = (PROJECT / "deploy" / "docker" / "Dockerfile").read_text()


@pytest.fixture(scope="module")
def plain() -> dict[str, Any]:
    read: dict[str, Any] = yaml.safe_load(COMPOSE_FILE.read_text())
    return read


@pytest.fixture
def variables() -> dict[str, str]:
    return {name: f"secret-{number}" for number, name in enumerate(sorted(_required_variables()))}


def test_the_compose_file_follows_the_compose_specification() -> None:
    check = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(COMPOSE_FILE)]
    done = subprocess.run(check, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_nothing_is_published_beyond_this_machine_unless_somebody_says_so(plain: dict[str, Any]) -> None:
    published = [port for one in plain["services"].values() for port in one.get("ports", ())]
    assert len(published) == 4
    assert all(port.startswith(("127.0.0.1:", "${SKEWLESS_HOST:-127.0.0.1}:")) for port in published)


def test_every_secret_comes_from_the_environment(plain: dict[str, Any]) -> None:
    settings = [(key, value) for one in plain["services"].values() for key, value in one["environment"].items()]
    secret = re.compile(r"PASSWORD|SECRET(?!_KEY$)|_KEY$|SQL_ALCHEMY_CONN|__URI$")
    hidden = {key: value for key, value in settings if secret.search(key)}
    assert len(hidden) >= 9
    for key, value in hidden.items():
        assert re.search(r"\$\{\w+:\?[^}]+\}", value), f"{key} has a value in the file"


def test_a_missing_secret_is_named_with_what_to_do(variables: dict[str, str]) -> None:
    del variables["AIRFLOW_FERNET_KEY"]
    with pytest.raises(ClusterError, match=r"AIRFLOW_FERNET_KEY, but got none; write \.env first, make env does it"):
        read_composition(COMPOSE_FILE, variables)


def test_secrets_never_enter_the_image_or_the_repository() -> None:
    assert ".env" in _lines(PROJECT / ".dockerignore")
    assert ".env" in _lines(PROJECT / ".gitignore")


def test_make_env_writes_fresh_secrets_for_their_owner_only(tmp_path: Path) -> None:
    one, other = (_made(tmp_path / name) for name in ("one", "other"))
    assert one.keys() == other.keys() == _required_variables()
    assert len({*one.values(), *other.values()}) == len(one) + len(other)
    Fernet(one["AIRFLOW_FERNET_KEY"])
    assert (tmp_path / "one").stat().st_mode & 0o777 == 0o600


def test_the_image_sets_what_processes_are_given_in_its_stead() -> None:
    (setting,) = re.findall(r"^ENV ((?:.*\\\n)*.*)$", DOCKERFILE, re.MULTILINE)
    assert re.findall(r"(\w+)=", setting) == list(IMAGE_ENVIRONMENT)


def test_the_image_holds_everything_to_the_hashes_of_the_lock() -> None:
    installs = [
        line for line in DOCKERFILE.splitlines() if "pip" in line and " install " in line and "apt-get" not in line
    ]
    *locked, ours = installs
    assert len(locked) == 2
    assert all("--require-hashes" in line and "--no-deps" in line for line in locked)
    assert "--offline" in ours
    assert ours.endswith("-e .")


def test_what_the_image_copies_and_what_the_services_name_is_there(plain: dict[str, Any]) -> None:
    copied = [line.split()[1:-1] for line in DOCKERFILE.splitlines() if line.startswith("COPY")]
    sources = {source for line in copied for source in line}
    assert all((PROJECT / source).exists() for source in sources)
    named = set(re.findall(r"/opt/skewless/([\w./-]+)", yaml.safe_dump(plain["services"])))
    for path in named - {"catalog"}:  # which is mounted
        assert (PROJECT / path).exists()
        assert any(f"{path}/".startswith(f"{source}/") for source in sources), path


def _required_variables() -> set[str]:
    return set(re.findall(r"\$\{(\w+):\?", COMPOSE_FILE.read_text()))


def _made(target: Path) -> dict[str, str]:
    make = [sys.executable, str(PROJECT / "deploy" / "docker" / "make_env.py"), str(target)]
    done = subprocess.run(make, check=True, capture_output=True, text=True)
    made = dict(line.split("=", 1) for line in _lines(target))
    assert not any(value and value in done.stdout + done.stderr for value in made.values() if len(value) > 10)
    return made


def _lines(file: Path) -> list[str]:
    return [line for line in file.read_text().splitlines() if line and not line.startswith("#")]


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
