"""A step that a provider's operator submits: what it asks for, what a second try finds, and what is refused. No Spark.

The operators, hooks and triggers are those of Airflow's providers, against servers of this machine: moto's EMR
Serverless, a stand-in for Livy, and small ones for Databricks and Kubernetes that hold each request to what the
provider's client documents.
"""

import asyncio
import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar, cast

import boto3
import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowException, TaskDeferred
from moto.emrserverless.models import emrserverless_backends
from moto.server import ThreadedMotoServer

from skewless.documents.step_documents import Failure, failure_document
from skewless.errors import SpecError
from skewless.run.directory import RunDirectory
from skewless.spec import SparkSettings
from skewless_airflow.operators.spark_step import SkewlessSparkOperator
from skewless_airflow.run_store import spark_entry
from skewless_airflow.runners import RemoteStep, remote_of
from tests import airflow_setting
from tests.processes import until
from tests.stand_in_livy import json_server, stand_in_livy

pytestmark = [
    airflow_setting.IN_PROCESS, pytest.mark.usefixtures("airflow_database"),
    pytest.mark.filterwarnings("ignore:ProvidersManager.hooks"),
]  # fmt: skip

PACKAGE = "s3://lake/skewless/0.1.0-abc"
WORDS = ["stage", "--run-dir", "RUN", "--stage", "0", "--failure-name"]


class Try:
    dag_id, run_id, task_id, map_index, try_number = "words", "night", "stage", -1, 1
    pushed: ClassVar[dict[str, Any]] = {}

    def xcom_push(self, key: str, value: Any) -> None:
        self.pushed[key] = value


def stepped(run: RunDirectory, submit: dict[str, Any], conf: dict[str, str] | None = None) -> RemoteStep:
    with DAG("words", schedule=None) as dag:
        settings = SparkSettings.model_validate({"submit": submit, "conf": conf or {}})
        task = SkewlessSparkOperator(task_id="stage", spark_step="stage", step="stages/0000", spark=settings)
    task.application_args = WORDS[:-1]
    context: Any = {"ti": Try(), "task_instance": Try(), "dag": dag, "run_id": "night", "task": task}
    return cast("RemoteStep", remote_of(task, run, context))


def deferred(runner: RemoteStep) -> TaskDeferred:
    with pytest.raises(TaskDeferred) as caught:
        list(runner.lines())
    assert caught.value.method_name == "resume"
    return caught.value


def resumed(runner: RemoteStep, begun: TaskDeferred, event: dict[str, Any]) -> str:
    assert list(runner.resumed(event, **(begun.kwargs or {}))) == []
    return runner.failure()


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunDirectory:
    monkeypatch.setenv("SKEWLESS_ROOT", tmp_path.as_uri())
    return RunDirectory(f"{tmp_path.as_uri()}/runs/words/night")


def commit(run: RunDirectory) -> None:
    (folder := Path(str(run)) / "stages/0000").mkdir(parents=True)
    (folder / "COMMIT.json").touch()


NAME = re.compile(r"skewless-words-stage-[0-9a-f]{12}-\d")


@pytest.fixture
def emr(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[dict[str, Any], Callable[[], list[Any]]]]:
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    for name, value in {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}", "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b",
        "AWS_DEFAULT_REGION": "eu-west-1", "AIRFLOW_CONN_AWS_DEFAULT": "aws://",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    client = boto3.client("emr-serverless")
    made = client.create_application(name="a", releaseLabel="emr-7.13.0", type="SPARK", clientToken="t")
    role, ident = "arn:aws:iam::123456789012:role/spark", made["applicationId"]
    # moto lists the runs of an application only once it has had one.
    client.start_job_run(applicationId=ident, clientToken="first", executionRoleArn=role, name="another")
    backend = emrserverless_backends["123456789012"]["eu-west-1"]
    submit = {
        "runner": "emr_serverless", "package": PACKAGE, "application_id": ident, "execution_role_arn": role,
        "waiter_delay": 20,
    }  # fmt: skip
    try:
        yield submit, lambda: backend.job_runs[ident][1:]
    finally:
        server.stop()


def test_emr_serverless_has_one_job_run_for_two_tries_and_another_after_its_end(
    emr: tuple[dict[str, Any], Callable[[], list[Any]]], run: RunDirectory
) -> None:
    submit, job_runs = emr
    first = deferred(stepped(run, submit, {"spark.executor.memory": "8g"}))
    (job,) = job_runs()
    assert NAME.fullmatch(job.name)
    assert job.client_token == job.name
    spark = job.job_driver["sparkSubmit"]
    assert spark["entryPoint"] == f"{PACKAGE}/steps.py"
    assert spark["entryPointArguments"] == [*WORDS, f"stage-1-{job.name[-14:-6]}"]
    assert f"--archives '{PACKAGE}/environment.tar.gz#environment'" in spark["sparkSubmitParameters"]
    assert "--conf spark.executor.memory=8g" in spark["sparkSubmitParameters"]
    module, of_trigger = first.trigger.serialize()
    assert module.endswith("EmrServerlessStartJobTrigger")
    assert (of_trigger["job_id"], of_trigger["waiter_delay"], of_trigger["waiter_max_attempts"]) == (job.id, 20, 4320)
    job.state = "RUNNING"
    again = deferred(stepped(run, submit))
    assert again.trigger.serialize()[1]["job_id"] == job.id
    job.state = "FAILED"
    deferred(stepped(run, submit))
    assert [one.name[-2:] for one in job_runs()] == ["-1", "-2"]
    commit(run)
    assert list(stepped(run, submit).lines()) == []
    assert len(job_runs()) == 2


def test_livy_has_one_batch_for_two_tries_and_another_after_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: RunDirectory
) -> None:
    submit = {"runner": "livy", "queue": "night", "archives": ["hdfs:///a.zip"], "package": PACKAGE}
    with stand_in_livy(tmp_path / "livy", [sys.executable, "-c", "raise SystemExit(1)"]) as livy:
        monkeypatch.setenv("AIRFLOW_CONN_LIVY_DEFAULT", livy.connection)
        livy.hold()
        first = deferred(stepped(run, submit, {"spark.a": "b"}))
        again = deferred(stepped(run, submit))
        (batch,) = livy.batches
        assert NAME.fullmatch(batch.name)
        assert {begun.trigger.serialize()[1]["batch_id"] for begun in (first, again)} == {batch.number}
        python = {
            f"spark.{name}.PYSPARK_PYTHON": "./environment/bin/python" for name in ("yarn.appMasterEnv", "executorEnv")
        }
        assert batch.body == {
            "file": f"{PACKAGE}/steps.py", "args": [*WORDS, f"stage-1-{batch.name[-14:-6]}"], "queue": "night",
            "name": batch.name, "conf": {**python, "spark.a": "b"},
            "archives": ["hdfs:///a.zip", f"{PACKAGE}/environment.tar.gz#environment"],
        }  # fmt: skip
        # A trigger that could not reach Livy says what it says of a batch that failed: it is asked at the next try.
        lost = {"status": "error", "batch_id": batch.number, "response": "no answer", "log_lines": None}
        assert resumed(stepped(run, submit), first, lost) == "no answer"
        assert deferred(stepped(run, submit)).trigger.serialize()[1]["batch_id"] == batch.number
        livy.release()
        until(lambda: batch.state == "dead", "the batch to end")
        deferred(stepped(run, submit))
        assert [one.name[-2:] for one in livy.batches] == ["-1", "-2"]


#: Takes note of its words.
_SUBMIT = """#!/bin/sh
printf '%s\\n' "$@" >"{0}/application_1_$(ls "{0}" | wc -l)"
"""


def test_yarn_has_one_application_for_two_tries_and_another_after_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: RunDirectory
) -> None:
    (applications := tmp_path / "applications").mkdir()
    (tmp_path / "spark-submit").write_text(_SUBMIT.format(applications))
    (tmp_path / "spark-submit").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    killed = dict[str, str]()

    def words() -> dict[str, list[str]]:
        return {file.name: file.read_text().splitlines() for file in sorted(applications.iterdir())}

    def answer(method: str, path: str, body: Any) -> tuple[int, Any]:
        if method == "PUT":
            killed[path.removeprefix("/ws/v1/cluster/apps/").removesuffix("/state")] = body["state"]
            return 200, body
        tag = path.removeprefix("/ws/v1/cluster/apps?applicationTags=")
        names = [name for name, said in words().items() if f"spark.yarn.tags={tag}" in said]
        found = [{"id": name, "state": killed.get(name, "RUNNING"), "finalStatus": "KILLED"} for name in names]
        return 200, {"apps": {"app": found} if found else None}

    monkeypatch.setenv("SKEWLESS_SPARK_HISTORY", "http://history/{app_id}")
    submit = {"runner": "yarn", "yarn_queue": "night", "package": PACKAGE}
    with json_server(answer) as address:
        connection = {"conn_type": "spark", "host": "yarn", "extra": {"yarn_resourcemanager_webapp_address": address}}
        monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(connection))
        first = deferred(stepped(run, submit, {"spark.a": "b"})).trigger
        assert deferred(stepped(run, submit)).trigger.serialize() == first.serialize()
        ((application, said),) = words().items()
        assert f"http://history/{application}" in Try.pushed.values()
        tag = said[said.index("--name") + 1]
        assert NAME.fullmatch(tag)
        python = "PYSPARK_PYTHON=./environment/bin/python"
        assert {"spark.a=b", f"spark.executorEnv.{python}", f"spark.yarn.appMasterEnv.{python}"} <= set(said)
        for option, value in {
            "--master": "yarn", "--deploy-mode": "cluster", "--queue": "night",
            "--archives": f"{PACKAGE}/environment.tar.gz#environment",
        }.items():  # fmt: skip
            assert said[said.index(option) + 1] == value
        assert said[-len(WORDS) - 2 :] == [f"{PACKAGE}/steps.py", *WORDS, f"stage-1-{tag[-14:-6]}"]
        asyncio.run(first.on_kill())
        event = asyncio.run(anext(first.run())).payload
        assert event == {"id": application, "finalStatus": "KILLED", "diagnostics": ""}
        deferred(stepped(run, submit))
        assert len(words()) == 2
        monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({**connection, "extra": {}}))
        with pytest.raises(SpecError, match="expected yarn_resourcemanager_webapp_address, by which drivers are"):
            list(stepped(run, submit).lines())


def test_databricks_has_one_run_for_each_token_and_another_token_after_its_end(
    monkeypatch: pytest.MonkeyPatch, run: RunDirectory
) -> None:
    runs: dict[str, dict[str, Any]] = {}

    def answer(method: str, path: str, body: Any) -> tuple[int, Any]:
        if (method, path) == ("POST", "/api/2.2/jobs/runs/submit"):
            runs.setdefault(body["idempotency_token"], body)
            return 200, {"run_id": 1 + list(runs).index(body["idempotency_token"])}
        assert path.startswith("/api/2.2/jobs/runs/get"), path
        return 200, {"job_id": 7, "run_page_url": "https://bricks/run", "state": {"life_cycle_state": "RUNNING"}}

    cluster = {"spark_version": "18.x", "num_workers": 2, "spark_conf": {"spark.x": "y"}}
    submit = {"runner": "databricks", "package": PACKAGE, "new_cluster": cluster}
    with json_server(answer) as address:
        host, port = address.removeprefix("http://").split(":")
        monkeypatch.setenv("AIRFLOW_CONN_DATABRICKS_DEFAULT", f"databricks://:token@{host}:{port}/http")
        first, again = (deferred(stepped(run, submit, {"spark.a": "b"})) for _ in range(2))
        assert [begun.trigger.serialize()[1]["run_id"] for begun in (first, again)] == [1, 1]
        ((token, body),) = runs.items()
        assert NAME.fullmatch(token)
        assert body == {
            "run_name": token, "idempotency_token": token,
            "spark_python_task": {
                "python_file": f"{PACKAGE}/steps.py", "parameters": [*WORDS, f"stage-1-{token[-14:-6]}"],
            },
            "new_cluster": {
                "spark_version": "18.x", "num_workers": "2", "spark_conf": {"spark.x": "y", "spark.a": "b"},
            },
            "libraries": [
                {"whl": f"{PACKAGE}/skewless-0.1.0-py3-none-any.whl"}, {"requirements": f"{PACKAGE}/requirements.txt"},
            ],
        }  # fmt: skip
        state = {"life_cycle_state": "INTERNAL_ERROR", "result_state": "FAILED", "state_message": "no machine"}
        event = {"run_id": 1, "run_page_url": "u", "run_state": json.dumps(state), "errors": []}
        runner = stepped(run, submit)
        assert "no machine" in resumed(runner, first, event)
        assert "no machine" in run.read(failure_document(runner.attempt), Failure).sentence
        deferred(stepped(run, submit))
        assert [name[-2:] for name in runs] == ["-1", "-2"]


TEMPLATE = {"spec": {"image": "registry/skewless:1", "sparkVersion": "4.3.0", "driver": {"cores": 1}, "executor": {}}}


def test_kubernetes_has_one_application_for_two_tries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: RunDirectory
) -> None:
    made: dict[str, Any] = {}
    created: list[str] = []
    folder = "/apis/sparkoperator.k8s.io/v1beta2/namespaces/night/sparkapplications"

    def answer(method: str, path: str, body: Any) -> tuple[int, Any]:
        path, _, query = path.partition("?")
        name = path.removeprefix(folder).removeprefix("/").removesuffix("/status")
        if path == "/api/v1/namespaces/night/pods":
            asked = dict(re.findall(r"([a-z_-]+)%3D([\w.-]+)", query))
            assert asked["spark-role"] == "driver"
            pods = [pod(one) for one in made.values() if one["spec"]["driver"]["labels"]["task_id"] == asked["task_id"]]
            return 200, {"kind": "PodList", "apiVersion": "v1", "items": pods}
        assert path.startswith(folder), path
        if method == "POST":
            name = body["metadata"]["name"]
            if name in made:
                return 409, {"kind": "Status", "reason": "AlreadyExists"}
            created.append(name)
            made[name] = {**body, "status": {"applicationState": {"state": "RUNNING"}}}
            return 201, body
        return (200, made[name]) if name in made else (404, {"kind": "Status", "reason": "NotFound"})

    def pod(application: dict[str, Any]) -> dict[str, Any]:
        name, labels = f"{application['metadata']['name']}-driver", application["spec"]["driver"]["labels"]
        return {"metadata": {"name": name, "namespace": "night", "labels": labels}, "status": {"phase": "Running"}}

    submit = {"runner": "kubernetes", "namespace": "night", "template_spec": TEMPLATE}
    with json_server(answer) as address:
        (config := tmp_path / "kube.yaml").write_text(json.dumps({
            "apiVersion": "v1", "kind": "Config", "current-context": "c", "users": [{"name": "u", "user": {}}],
            "clusters": [{"name": "k", "cluster": {"server": address}}],
            "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        }))  # fmt: skip
        connection = {"conn_type": "kubernetes", "extra": {"kube_config_path": str(config)}}
        monkeypatch.setenv("AIRFLOW_CONN_KUBERNETES_DEFAULT", json.dumps(connection))
        first, again = (deferred(stepped(run, submit, {"spark.a": "b"})) for _ in range(2))
        (name,) = created
        assert NAME.fullmatch(name)
        assert {begun.trigger.serialize()[1]["pod_name"] for begun in (first, again)} == {f"{name}-driver"}
        spec = made[name]["spec"]
        assert (spec["type"], spec["mode"], spec["restartPolicy"]) == ("Python", "cluster", {"type": "Never"})
        assert spec["mainApplicationFile"] == f"local://{spark_entry('pipeline.py')}"
        assert spec["arguments"] == [*WORDS, f"stage-1-{name[-14:-6]}"]
        assert (spec["image"], spec["sparkConf"]) == ("registry/skewless:1", {"spark.a": "b"})
        made[name]["spec"]["driver"]["labels"]["task_id"] = "gone"
        with pytest.raises(AirflowException, match="is submitted, and its driver has not started yet"):
            list(stepped(run, submit).lines())
        made[name]["status"]["applicationState"]["state"] = "FAILED"
        deferred(stepped(run, submit))
        assert [one[-2:] for one in created] == ["-1", "-2"]


@pytest.mark.parametrize(
    ("submit", "conf", "sentence"),
    [
        ({"runner": "livy", "memory": "8g"}, {}, "spark.submit.memory: expected an argument of LivyOperator"),
        ({"runner": "livy", "file": "x.py"}, {}, "spark.submit.file: expected no file, which Skewless gives Livy"),
        ({"runner": "databricks", "new_cluster": {}}, {}, "spark.submit: expected package, where the cluster has"),
        ({"runner": "databricks", "package": "p"}, {"spark.a": "b"}, "expected new_cluster"),
    ],
    ids=["no argument", "given by us", "no package", "settings of an existing cluster"],
)  # fmt: skip
def test_what_a_runner_cannot_do_is_refused_in_a_sentence(
    run: RunDirectory, submit: dict[str, Any], conf: dict[str, str], sentence: str
) -> None:
    with pytest.raises(SpecError, match=re.escape(sentence)):
        list(stepped(run, submit, conf).lines())


def test_a_run_directory_that_the_cluster_does_not_see_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, run: RunDirectory
) -> None:
    monkeypatch.setenv("SKEWLESS_ROOT", str(tmp_path))
    with pytest.raises(SpecError, match=r"SKEWLESS_RUNS: expected a URL that the cluster reads, .* for spark.submit"):
        stepped(run, {"runner": "livy"})


def test_the_fields_of_spark_submit_are_arguments_of_its_operator() -> None:
    settings = SparkSettings.model_validate({"submit": {"conn_id": "east", "executor_cores": 4, "files": "a.txt"}})
    with DAG("words", schedule=None):
        task = SkewlessSparkOperator(task_id="stage", spark_step="stage", spark=settings)
        assert (task._conn_id, task._executor_cores, task.files) == ("east", 4, "a.txt")
        for wrong, sentence in {"cores": "an argument of SparkSubmitOperator", "conf": "no conf"}.items():
            settings = SparkSettings.model_validate({"submit": {wrong: 4}})
            with pytest.raises(SpecError, match=f"spark.submit.{wrong}: expected {sentence}"):
                SkewlessSparkOperator(task_id=wrong, spark_step="stage", spark=settings)
