"""A step that a provider's operator submits: what it asks for, what a second try finds, and what is refused. No Spark.

The operators, hooks and triggers are those of Airflow's providers, against servers of this machine: moto's EMR
Serverless, and stand-ins (``tests.stand_in_services``, ``tests.stand_in_livy``).
"""

import asyncio
import json
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar, cast

import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowException, TaskDeferred

from skewless.documents.step_documents import Failure, failure_document
from skewless.errors import SpecError
from skewless.run.directory import RunDirectory
from skewless.spec import SparkSettings
from skewless_airflow.operators.spark_step import SkewlessSparkOperator
from skewless_airflow.run_store import spark_entry
from skewless_airflow.runners import RemoteStep, kubernetes, remote_of
from skewless_airflow.runners.remote import Application
from tests import airflow_setting
from tests.processes import until
from tests.stand_in_livy import json_server, stand_in_livy
from tests.stand_in_services import Application as Submitted
from tests.stand_in_services import Databricks, EmrServerless, Kubernetes, Service, Yarn, event_of, spark_submit

pytestmark = [
    airflow_setting.IN_PROCESS, pytest.mark.usefixtures("airflow_database"),
    pytest.mark.filterwarnings(
        "ignore:ProvidersManager.hooks", "ignore:BasicAuth is deprecated", "ignore:The 'auth' parameter is deprecated"
    ),
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


def application(conf: dict[str, str]) -> Application:
    return Application("skewless-words-1", "stage-1", tuple(WORDS), conf, 60.0, PACKAGE, lambda *_, **__: None)


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


def serve(service: Service, address: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in service.variables(address, folder).items():
        monkeypatch.setenv(name, value)


@pytest.fixture(params=[Databricks, EmrServerless, Kubernetes, Yarn])
def service(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    made: Service = request.param()
    with made.served() if isinstance(made, EmrServerless) else json_server(made.answer) as address:
        spark_submit(tmp_path, address)
        monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
        serve(made, address, tmp_path, monkeypatch)
        yield made


def test_two_tries_have_one_application_and_one_after_its_end_has_another(service: Service, run: RunDirectory) -> None:
    tried_again(service, run, CHECKS[type(service)])


def tried_again(service: Service, run: RunDirectory, check: Callable[[Submitted, dict[str, Any]], None]) -> None:
    submit = {**service.submit, **({} if isinstance(service, Kubernetes) else {"package": PACKAGE})}
    first, again = (deferred(stepped(run, submit, {"spark.a": "b"})).trigger.serialize()[1] for _ in range(2))
    (one,) = service.applications
    assert NAME.fullmatch(one.name)
    assert one.words == [*WORDS, f"stage-1-{one.name[-14:-6]}"]
    assert {**first, "trigger_start_time": ""} == {**again, "trigger_start_time": ""}
    check(one, first)
    one.code = 1
    begun = deferred(stepped(run, submit, {"spark.a": "b"}))
    if len(service.names) == 1:  # its token gives the run that has ended
        assert resumed(stepped(run, submit, {"spark.a": "b"}), begun, event_of(begun.trigger))
        deferred(stepped(run, submit, {"spark.a": "b"}))
    assert [name[-2:] for name in service.names] == ["-1", "-2"]
    commit(run)
    assert list(stepped(run, submit).lines()) == []


def check_databricks(run: Submitted, trigger: dict[str, Any]) -> None:
    assert trigger["run_id"] == 1
    assert "https://bricks/run/1" in Try.pushed.values()
    assert run.body == {
        "run_name": run.name, "idempotency_token": run.name, "tasks": [{
            "task_key": "step", "libraries": [
                {"whl": f"{PACKAGE}/skewless-0.1.0-py3-none-any.whl"}, {"requirements": f"{PACKAGE}/requirements.txt"},
            ],
            "spark_python_task": {"python_file": f"{PACKAGE}/steps.py", "parameters": run.words},
            "new_cluster": {
                "spark_version": "18.x", "num_workers": "2", "spark_conf": {"spark.x": "y", "spark.a": "b"},
            },
        }],
    }  # fmt: skip


def check_emr(run: Submitted, trigger: dict[str, Any]) -> None:
    job, spark = run.body, run.body.job_driver["sparkSubmit"]
    assert (job.client_token, spark["entryPoint"]) == (job.name, f"{PACKAGE}/steps.py")
    assert f"--archives '{PACKAGE}/environment.tar.gz#environment'" in spark["sparkSubmitParameters"]
    assert "--conf spark.a=b" in spark["sparkSubmitParameters"]
    assert (trigger["job_id"], trigger["waiter_delay"], trigger["waiter_max_attempts"]) == (job.id, 1, 86_400)


def check_kubernetes(application: Submitted, trigger: dict[str, Any]) -> None:
    assert trigger["pod_name"] == f"{application.name}-driver"
    spec = application.body["spec"]
    assert (spec["type"], spec["mode"], spec["restartPolicy"]) == ("Python", "cluster", {"type": "Never"})
    assert spec["mainApplicationFile"] == f"local://{spark_entry('pipeline.py')}"
    assert (spec["image"], spec["sparkConf"]) == ("registry/skewless:1", {"spark.a": "b"})


def check_yarn(application: Submitted, _: dict[str, Any]) -> None:
    said, python = application.body, "PYSPARK_PYTHON=./environment/bin/python"
    assert {"spark.a=b", f"spark.executorEnv.{python}", f"spark.yarn.appMasterEnv.{python}"} <= set(said)
    for option, value in {
        "--master": "yarn", "--deploy-mode": "cluster", "--queue": "night", "--name": application.name,
        "--archives": f"{PACKAGE}/environment.tar.gz#environment",
    }.items():  # fmt: skip
        assert said[said.index(option) + 1] == value
    assert said[-len(application.words) - 1] == f"{PACKAGE}/steps.py"


CHECKS: dict[type[Service], Callable[[Submitted, dict[str, Any]], None]] = {
    Databricks: check_databricks, EmrServerless: check_emr, Kubernetes: check_kubernetes, Yarn: check_yarn,
}  # fmt: skip


@pytest.mark.parametrize("service", [EmrServerless], indirect=True)
def test_an_application_of_which_nothing_is_known_is_asked_for_again(service: Service, run: RunDirectory) -> None:
    submit = {**service.submit, "package": PACKAGE}
    begun = deferred(stepped(run, submit))
    assert resumed(stepped(run, submit), begun, {"status": "failure", "message": "no answer"}) == "no answer"
    deferred(stepped(run, submit))
    assert len(service.names) == 1


@pytest.mark.parametrize("service", [Databricks, Yarn], indirect=True)
def test_a_trigger_whose_task_is_stopped_ends_the_application(
    service: Service, run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SKEWLESS_SPARK_HISTORY", "http://history/{app_id}")
    submit = {**service.submit, "package": PACKAGE}
    begun = deferred(stepped(run, submit))
    asyncio.run(begun.trigger.on_kill())
    runner = stepped(run, submit)
    said = resumed(runner, begun, event_of(begun.trigger))
    assert said in run.read(failure_document(runner.attempt), Failure).sentence
    assert "http://history/application_1_0" in Try.pushed.values() or isinstance(service, Databricks)


def test_yarn_needs_the_address_of_its_resource_manager(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({"conn_type": "spark", "host": "yarn"}))
    with pytest.raises(SpecError, match="expected yarn_resourcemanager_webapp_address, by which drivers are"):
        list(stepped(run, Yarn.submit).lines())


@pytest.mark.parametrize("service", [Kubernetes], indirect=True)
def test_a_driver_that_has_not_started_is_awaited_by_a_further_try(
    service: Kubernetes, run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    deferred(stepped(run, service.submit))
    service.lag = 1e9
    with pytest.raises(AirflowException, match="is submitted, and its driver has not started within 0 s"):
        list(stepped(run, {**service.submit, "startup_timeout_seconds": 0}).lines())
    monkeypatch.setattr(kubernetes, "_POLL_SECONDS", 0.01)
    threading.Timer(0.2, setattr, [service, "lag", 0.0]).start()
    deferred(stepped(run, service.submit))
    assert len(service.names) == 1


def test_livy_has_one_batch_for_two_tries_and_another_after_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: RunDirectory
) -> None:
    submit = {"runner": "livy", "queue": "night", "archives": ["hdfs:///a.zip"], "package": PACKAGE}
    with stand_in_livy(tmp_path / "livy", [sys.executable, "-c", "raise SystemExit(1)"]) as livy:
        monkeypatch.setenv("AIRFLOW_CONN_LIVY_DEFAULT", livy.connection)
        monkeypatch.setenv("SKEWLESS_SPARK_HISTORY", "http://history/{app_id}")
        livy.hold()
        first = deferred(stepped(run, submit, {"spark.a": "b"}))
        assert "http://history/app-0" in Try.pushed.values()
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
        asyncio.run(first.trigger.on_kill())  # of a task that is marked as failed, or cleared
        until(lambda: batch.state == "dead", "the batch to end")
        deferred(stepped(run, submit))
        livy.release()
        until(lambda: livy.batches[-1].state == "dead", "the batch to end")
        deferred(stepped(run, submit))
        assert [name[-2:] for name in livy.names] == ["-1", "-1", "-2"]


@pytest.mark.parametrize(
    ("submit", "conf", "sentence"),
    [
        ({"runner": "livy", "memory": "8g"}, {}, "spark.submit.memory: expected an argument of LivyOperator"),
        ({"runner": "livy", "file": "x.py"}, {}, "spark.submit.file: expected no file, which Skewless gives Livy"),
        ({"runner": "databricks", "new_cluster": {}}, {}, "spark.submit: expected package, where the cluster has"),
        ({"runner": "databricks", "package": "p"}, {"spark.a": "b"}, "expected new_cluster"),
        ({"runner": "dataproc"}, {}, "spark.submit.runner: expected the provider of dataproc, but got none: No module"),
    ],
    ids=["no argument", "given by us", "no package", "settings of an existing cluster", "no provider"],
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
