"""What providers' clients say of requests, of packages that hold back others and are laid aside for a test."""

import asyncio
import inspect
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.packages import BIN

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

GOOGLE_AUTH = ("google-auth==2.63.0", "pyasn1==0.6.5", "pyasn1-modules==0.4.2")
#: What the operator of Dataproc imports, of all that the provider asks for.
DATAPROC = (
    "apache-airflow-providers-google==22.8.0", "gcloud-aio-auth==5.6.0", "google-api-core==2.44.0",
    "google-api-python-client==2.202.0", "google-auth-httplib2==0.4.4", "google-cloud-dataproc==5.32.0",
    "google-cloud-secret-manager==2.32.0", "grpc-google-iam-v1==0.14.6", "httplib2==0.32.1", "proto-plus==1.29.0",
    "uritemplate==4.2.0", *GOOGLE_AUTH,
)  # fmt: skip
DATABRICKS = ("databricks-sdk==0.162.0", *GOOGLE_AUTH)


def variables_with(folder: Path, packages: tuple[str, ...]) -> dict[str, str]:
    """The environment of a process that has some packages beside those that are installed."""
    command = [str(BIN / "uv"), "pip", "install", "--quiet", "--python", sys.executable, "--no-deps", "--target"]
    subprocess.run([*command, str(folder), *packages], check=True)
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(Path(__file__).parents[2])])}


def run_aside(tmp_path: Path, packages: tuple[str, ...], what: str) -> None:
    environment = {**variables_with(tmp_path / "aside", packages), "SKEWLESS_ROOT": tmp_path.as_uri()}
    done = subprocess.run(
        [sys.executable, __file__, what, tmp_path], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_dataproc_has_one_batch_for_two_tries_and_another_after_its_end(tmp_path: Path) -> None:
    run_aside(tmp_path, DATAPROC, "dataproc")


def test_a_run_of_databricks_is_what_its_published_client_sends(tmp_path: Path) -> None:
    run_aside(tmp_path, DATABRICKS, "databricks")


def databricks(_: Path) -> None:
    from databricks.sdk.service.jobs import JobsAPI, SubmitTask

    from skewless_airflow.runners.databricks import arguments
    from tests.airflow.test_remote_runners import application

    for fields in ({"new_cluster": {"spark_version": "18.x", "num_workers": 2}}, {"existing_cluster_id": "c"}):
        conf = {"spark.a": "b"} if "new_cluster" in fields else {}
        asked = arguments(application(conf), {**fields, "libraries": [{"pypi": {"package": "p"}}]})
        of_operator = {"wait_for_termination", "deferrable"}
        assert asked.keys() - of_operator <= inspect.signature(JobsAPI.submit).parameters.keys()
        (task,) = asked["tasks"]
        assert SubmitTask.from_dict(task).as_dict() == task  # what it does not know it leaves out


def dataproc(folder: Path) -> None:
    from skewless.run.directory import RunDirectory
    from tests.airflow.test_remote_runners import PACKAGE, Try, deferred, resumed, serve, stepped, tried_again
    from tests.stand_in_dataproc import Dataproc, on_this_machine
    from tests.stand_in_services import Application, event_of

    def check(batch: Application, trigger: dict[str, Any]) -> None:
        assert trigger["batch_id"] == batch.name
        assert batch.body.pyspark_batch.main_python_file_uri == f"{PACKAGE}/steps.py"
        assert list(batch.body.pyspark_batch.archive_uris) == [f"{PACKAGE}/environment.tar.gz#environment"]
        assert batch.body.runtime_config.properties["spark.a"] == "b"
        assert batch.body.environment_config.execution_config.subnetwork_uri == "night"
        assert any(f"/dataproc/batches/europe-west1/{batch.name}/" in str(said) for said in Try.pushed.values())

    on_this_machine()
    google, root = Dataproc(), os.environ["SKEWLESS_ROOT"]
    with google.served() as address, pytest.MonkeyPatch.context() as patch:
        serve(google, address, folder, patch)
        tried_again(google, RunDirectory(f"{root}/runs/words/night"), check)
        other, submit = RunDirectory(f"{root}/runs/words/other"), {**google.submit, "package": PACKAGE}
        begun = deferred(stepped(other, submit))
        asyncio.run(begun.trigger.on_kill())  # of a task that is marked as failed, or cleared
        assert "was cancelled" in resumed(stepped(other, submit), begun, event_of(begun.trigger))


if __name__ == "__main__":
    {"databricks": databricks, "dataproc": dataproc}[sys.argv[1]](Path(sys.argv[2]))
