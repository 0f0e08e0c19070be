"""Who runs a step: its connection says so, and one more runner is one module and one line of a table. No Spark."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

import pytest
import yaml
from airflow.dag_processing.dagbag import DagBag
from airflow.providers.apache.spark.hooks import spark_submit
from airflow.sdk import DAG, Context

from skewless.errors import SpecError
from skewless.run.directory import RunDirectory
from skewless_airflow.operators.spark_step import SkewlessSparkOperator
from skewless_airflow.run_store import spark_entry
from skewless_airflow.runners import StepRunner, runner_of
from skewless_airflow.runners.on_one_machine import DriverStep
from skewless_airflow.runners.process_session import Session, ask, begin, end
from skewless_airflow.runners.submit import ClusterStep, SubmittedStep
from tests import airflow_setting
from tests.airflow.recorded_run import NIGHT
from tests.airflow.test_dag_structure import SPEC
from tests.processes import until
from tests.stand_in_yarn import Application, stand_in_yarn
from tests.tiers import mostly_long

pytestmark = [airflow_setting.IN_PROCESS, pytest.mark.usefixtures("airflow_database")]


def connect(monkeypatch: pytest.MonkeyPatch, host: str, conn_type: str = "spark", **extra: str) -> None:
    given = {"conn_type": conn_type, "host": host, "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(given))


def asked(conf: dict[str, str] | None = None, **given: Any) -> SkewlessSparkOperator:
    with DAG("words", schedule=None):
        operator = SkewlessSparkOperator(task_id="stage", spark_step="stage", **given)
    operator.application_args = ["stage", "--stage", "0"]
    operator.conf = {**(operator.conf or {}), **(conf or {})}
    return operator


def chosen(conf: dict[str, str] | None = None, **given: Any) -> StepRunner:
    return runner_of(asked(conf, **given).step_of(RunDirectory("/nowhere"), Context()))


@pytest.mark.parametrize(
    ("host", "switch", "kind"),
    [
        ("local[2]", "1", DriverStep), ("local", "1", DriverStep), ("local[2]", "0", SubmittedStep),
        ("spark://cluster:7077", "1", SubmittedStep), ("yarn", "1", SubmittedStep),
    ],
)  # fmt: skip
def test_only_steps_on_this_machine_share_a_driver_and_only_if_that_is_wanted(
    monkeypatch: pytest.MonkeyPatch, host: str, switch: str, kind: type
) -> None:
    connect(monkeypatch, host)
    monkeypatch.setenv("SKEWLESS_WARM_DRIVER", switch)
    runner = chosen()
    assert type(runner) is kind
    if isinstance(runner, DriverStep):
        assert runner._settings.submit[:3] == ("spark-submit", "--master", host)
        assert "pipeline.py" not in " ".join(runner._settings.submit)


def test_a_step_whose_settings_are_its_own_has_a_process_of_its_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    connect(monkeypatch, "local[2]")
    assert isinstance(chosen({"spark.eventLog.enabled": "false"}), DriverStep)
    assert isinstance(chosen({"spark.openlineage.parentRunId": "0"}), SubmittedStep), "it names the task"
    submitted = chosen(post_submit_commands=[f"touch {tmp_path / 'after'}"])
    assert isinstance(submitted, SubmittedStep)
    assert not (tmp_path / "after").exists()
    submitted.close()
    assert (tmp_path / "after").exists()


RM = "yarn_resourcemanager_webapp_address"
CLIENT = "the deploy mode client, because Spark runs drivers in Python only on YARN and Kubernetes"
FOLLOWED = "by which drivers on the cluster are followed, but got none"


@pytest.mark.parametrize(
    ("host", "extra", "sentence"),
    [
        pytest.param("spark://m:7077", {}, f"spark_default: expected {CLIENT}, but got 'cluster' for", id="standalone"),
        pytest.param("local[2]", {}, f"spark_default: expected {CLIENT}, but got 'cluster' for", id="this machine"),
        pytest.param("yarn", {}, f"spark_default, extra: expected {RM}, {FOLLOWED}; write", id="YARN"),
        pytest.param("k8s://https://k", {}, f"spark_default, extra: expected namespace, {FOLLOWED}; name", id="k8s"),
    ],
)
def test_a_driver_on_a_cluster_that_cannot_have_it_or_be_asked_for_it_is_refused(
    monkeypatch: pytest.MonkeyPatch, host: str, extra: dict[str, str], sentence: str
) -> None:
    monkeypatch.setattr(spark_submit, "kube_client", object(), raising=False)
    connect(monkeypatch, host, **{"deploy-mode": "cluster"}, **extra)
    with pytest.raises(SpecError, match=re.escape(sentence)):
        chosen()


@pytest.mark.skipif(find_spec("airflow.providers.cncf") is not None, reason="it is installed here")
def test_a_master_on_kubernetes_without_its_provider_is_refused_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    connect(monkeypatch, "k8s://https://k:6443", namespace="night")
    with pytest.raises(SpecError, match=r"got none; pip install apache-airflow-providers-cncf-kubernetes\.$"):
        chosen()


#: What ships our code to machines of YARN, which have none of it; on Kubernetes it is in the image.
SHIPPED = {"archives": "hdfs:///envs/skewless.tar.gz#environment", "py_files": "hdfs:///envs/aggregates.zip"}
PYTHON = {"spark.yarn.appMasterEnv.PYSPARK_PYTHON": "./environment/bin/python"}
IMAGE = {"spark.kubernetes.container.image": "registry/skewless:1"}
ON_YARN = """
    --master yarn --conf spark.driver.memory=2g --conf spark.ui.showConsoleProgress=false
    --conf spark.yarn.appMasterEnv.PYSPARK_PYTHON=./environment/bin/python {wait}
    --conf spark.yarn.appMasterEnv.SKEWLESS_RUN_GROUP=night --py-files hdfs:///envs/aggregates.zip
    --archives hdfs:///envs/skewless.tar.gz#environment --name arrow-spark --queue nightly --deploy-mode {mode}
"""
ON_KUBERNETES = """
    --master k8s://https://k:6443 --conf spark.driver.memory=2g --conf spark.ui.showConsoleProgress=false
    --conf spark.kubernetes.container.image=registry/skewless:1 {wait}
    --conf spark.kubernetes.driverEnv.SKEWLESS_RUN_GROUP=night --conf spark.kubernetes.namespace=night
    --name arrow-spark --deploy-mode {mode}
"""
#: Takes note of its arguments, as spark-submit would be given them, and says what it says of what it has submitted.
SUBMIT = """#!/bin/sh
printf '%s\\n' "$@" >"{noted}"
echo 'INFO Client: Submitted application application_1700000000000_0042'
echo 'INFO LoggingPodStatusWatcherImpl: pod name: words-stage-4f2a-driver'
"""


@pytest.mark.parametrize("mode", ["client", "cluster"])
@pytest.mark.parametrize(
    ("host", "extra", "conf", "given", "words", "wait", "entry"),
    [
        pytest.param(
            "yarn", {RM: "http://rm:8088", "queue": "nightly"}, PYTHON, SHIPPED, ON_YARN,
            "--conf spark.yarn.submit.waitAppCompletion=false", "", id="YARN",
        ),
        pytest.param(
            "k8s://https://k:6443", {"namespace": "night"}, IMAGE, {}, ON_KUBERNETES,
            "--conf spark.kubernetes.submission.waitAppCompletion=false", "local://", id="Kubernetes",
        ),
    ],
)  # fmt: skip
def test_the_command_for_yarn_and_kubernetes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, mode: str, host: str, extra: dict[str, str],
    conf: dict[str, str], given: dict[str, str], words: str, wait: str, entry: str,
) -> None:  # fmt: skip
    monkeypatch.setattr(spark_submit, "kube_client", object(), raising=False)
    monkeypatch.setenv("SKEWLESS_RUN_GROUP", "night")
    (tmp_path / "spark-submit").write_text(SUBMIT.format(noted=tmp_path / "noted"))
    (tmp_path / "spark-submit").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    connect(monkeypatch, host, **{"deploy-mode": mode}, **extra)
    operator = asked(conf, **given)
    runner = runner_of(operator.step_of(RunDirectory("/nowhere"), Context()))
    if mode == "client":
        assert list(runner.lines())
        shown = words.format(wait="", mode=mode)
        entry = ""
        shown = re.sub(r"--conf \S+SKEWLESS_RUN_GROUP=night", "", shown)  # the driver has the task's environment
    else:
        operator.submit_job(Context())
        shown = words.format(wait=wait, mode=mode)
    noted = (tmp_path / "noted").read_text().splitlines()
    assert noted == [*shown.split(), f"{entry}{spark_entry('pipeline.py')}", "stage", "--stage", "0"]
    assert type(runner) is (ClusterStep if mode == "cluster" else SubmittedStep)


class Try:
    dag_id, run_id, task_id, id = "words", "night", "stage", "cafe0001"
    try_number = 1
    stats_tags: ClassVar[dict[str, str]] = {}
    pushed: ClassVar[dict[str, str]] = {}

    def xcom_push(self, key: str, value: str) -> None:
        self.pushed[key] = value


def test_a_step_that_is_stopped_ends_the_application_that_an_earlier_try_has_submitted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SKEWLESS_SPARK_HISTORY", "http://history:18080/history/{app_id}/jobs/")
    with stand_in_yarn(tmp_path) as yarn:
        connect(monkeypatch, "yarn", **{"deploy-mode": "cluster", RM: yarn.address})
        (yarn.folder / "application_1_0001").mkdir()
        application = Application(yarn.folder / "application_1_0001")
        (application.folder / "exit").write_text("0")
        operator = asked()
        step = operator.step_of(RunDirectory("/nowhere"), Context())
        runner = runner_of(step)
        operator.poll_until_complete("application_1_0001", Context(ti=Try()))  # type: ignore[typeddict-item]
        assert list(Try.pushed.values()) == ["http://history:18080/history/application_1_0001/jobs/"]
        assert runner.stop() == 1
        assert application.state() == ("KILLED", "KILLED")


class Kept:
    """Airflow's task state, in a file that outlives the process of a try."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def get(self, key: str) -> Any:
        return self._read().get(key)

    def set(self, key: str, value: Any) -> None:
        self._file.write_text(json.dumps({**self._read(), key: value}))

    def _read(self) -> dict[str, Any]:
        return dict(json.loads(self._file.read_text())) if self._file.exists() else {}


def follow(entry: str, kept: str, try_number: str) -> str:
    """A try, as its task makes it; returns the name of the try that has submitted the driver."""
    operator, ti = asked(), Try()
    operator.application = entry
    context = Context(ti=ti, task_state_store=Kept(Path(kept)))  # type: ignore[typeddict-item]
    ti.try_number = int(try_number)
    runner = runner_of(operator.step_of(RunDirectory("/nowhere"), context))
    assert list(runner.lines()) == []
    assert runner.failure() == ""
    return operator._submitted_as(context)


#: The first of them, in a process of its own. The import sets the environment of tests that run in one process.
_LOST = """
import os, sys
given = dict(os.environ)
from tests.airflow.test_runners import follow
os.environ.update(given)
follow(*sys.argv[1:])
"""


@pytest.mark.parametrize("driver", mostly_long(["has ended", "runs"], "has ended"))
def test_a_try_after_a_lost_worker_finds_the_application_and_submits_no_second_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, driver: str
) -> None:
    entry, kept = str(tmp_path / "entry.py"), str(tmp_path / "kept.json")
    Path(entry).write_text("print('skewless: done')")
    with stand_in_yarn(tmp_path) as yarn:
        monkeypatch.setenv("PATH", str(yarn.programs), prepend=os.pathsep)
        connect(monkeypatch, "yarn", **{"deploy-mode": "cluster", RM: yarn.address})
        yarn.hold()
        lost = subprocess.Popen([sys.executable, "-c", _LOST, entry, kept, "1"])
        until(lambda: bool(yarn.asked), "the first try to follow its driver")
        lost.kill()
        lost.wait()
        if driver == "has ended":
            yarn.release()
            until(lambda: yarn.applications()[0].state()[0] == "FINISHED", "the driver to end")
        else:
            release = threading.Timer(1, yarn.release)
            release.start()
        assert follow(entry, kept, "2") == "stage-1-cafe0001"
        (application,) = yarn.applications()
        assert application.log == "skewless: done\n"


def test_a_connection_for_spark_connect_is_refused_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    connect(monkeypatch, "spark.example", "spark_connect")
    expected = (
        "connection spark_default: expected the type spark, by which steps are submitted, but got spark_connect; "
        "make its type spark, and its host the master of the cluster, or local[*]."
    )
    with pytest.raises(SpecError) as refused:
        chosen()
    assert str(refused.value) == expected


@pytest.mark.parametrize(
    ("root", "conn_id", "words"),
    [
        (None, "spark_default", "variable SKEWLESS_ROOT: expected a folder or a URL for inputs, runs and results"),
        ("data", "nowhere", "connection nowhere: expected a connection to Spark, but got none; create it: airflow"),
    ],
    ids=["no-root", "no-connection"],
)
def test_what_is_not_set_up_ends_the_first_task_in_one_sentence_and_one_try(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dags_folder: Path, capsys: pytest.CaptureFixture[str],
    root: str | None, conn_id: str, words: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SKEWLESS_ROOT")
    if root is not None:
        monkeypatch.setenv("SKEWLESS_ROOT", str(tmp_path / root))
    (tmp_path / "bare.yaml").write_text(yaml.safe_dump({**SPEC, "name": "bare"}))
    (dags_folder / "bare.py").write_text(
        "# airflow\nfrom skewless_airflow import build_dag\n"
        f"build_dag({str(tmp_path / 'bare.yaml')!r}, default_args={{'conn_id': {conn_id!r}}})\n"
    )
    done = DagBag(dags_folder / "bare.py").dags["bare"].test(logical_date=NIGHT, run_after=NIGHT)
    states = {ti.task_id: str(ti.state) for ti in done.get_task_instances()}
    assert (states["prepare"], states["publish"]) == ("failed", "upstream_failed"), "and not up for a retry"
    told = capsys.readouterr().out
    assert words in told
    assert "yarn" not in told


# What is started to outlive its starter: it takes nothing along that was its starter's, and it is found again.

#: As a Makefile or a CI job does: take a lock by a file that is open in the shell, then start something under it.
_UNDER_A_LOCK = 'exec 9>"$1"; flock 9; shift; "$@"'
_BEGIN = """
import os, sys
from pathlib import Path
from skewless_airflow.runners.submit import ClusterStep
from skewless_airflow.runners.process_session import begin

begun = begin(["sleep", "600"], os.environ, Path.cwd(), Path("said"))
print(begun.pid, begun.born)
"""


def _under_a_lock(folder: Path, script: str) -> str:
    command = ["bash", "-euc", _UNDER_A_LOCK, "bash", "lock", sys.executable, "-c", script]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout


def test_a_lock_of_the_starter_is_free_when_it_has_ended_though_what_it_started_lives(tmp_path: Path) -> None:
    pid, born = _under_a_lock(tmp_path, _BEGIN).split()
    begun = Session(int(pid), float(born))
    try:
        assert begun.leads()
        taken = subprocess.run(["flock", "--nonblock", "lock", "true"], cwd=tmp_path, check=False)
        assert taken.returncode == 0, "the lock is still held"
    finally:
        end([begun], 5)


def test_a_session_is_its_first_process_and_no_other_that_has_its_number(tmp_path: Path) -> None:
    script = (
        "import subprocess, sys, time; subprocess.Popen(['sleep', '60']); print('begun', flush=True); time.sleep(60)"
    )
    begun = begin([sys.executable, "-c", script], dict(os.environ), tmp_path, tmp_path / "said")
    try:
        until(lambda: len(begun.processes()) == 2, "a child of the session")
        assert begun.leads()
        reused = Session(begun.pid, begun.born - 60)  # its number was given to another process since
        assert (reused.leads(), reused.processes()) == (False, [])
        os.kill(begun.pid, signal.SIGKILL)
        until(lambda: not begun.leads(), "its end")
        assert (begun.leads(), len(begun.processes())) == (False, 1)
    finally:
        end([begun], 5)
    assert begun.processes() == []


def test_a_session_ends_with_all_that_it_started_though_it_does_not_listen(tmp_path: Path) -> None:
    # A child of a process group of its own, as components of Airflow make.
    script = "set -m; (trap '' TERM; sleep 60) & echo up; wait"
    session = begin(["bash", "-c", script], dict(os.environ), tmp_path, tmp_path / "output")
    until(lambda: "up" in (tmp_path / "output").read_text(), "its child")
    assert len(session.processes()) >= 2
    ask({session: signal.SIGTERM}, seconds=0.3)
    assert not session.leads()
    assert session.processes(), "the child did not listen"
    end([session], seconds=0.3)
    assert session.processes() == []
