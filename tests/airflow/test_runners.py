"""Who runs a step: its connection says so, and one more runner is one module and one line of a table. No Spark."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk import DAG, Context

from skewless.errors import SpecError
from skewless.run.directory import RunDirectory
from skewless_airflow.operators.spark_step import SkewlessSparkOperator
from skewless_airflow.runners import StepRunner, runner_of
from skewless_airflow.runners.on_one_machine import DriverStep, SubmittedStep
from skewless_airflow.runners.process_session import Session, begin, born, end
from tests import airflow_setting
from tests.airflow.recorded_run import NIGHT
from tests.airflow.test_dag_structure import SPEC
from tests.processes import until

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


@pytest.mark.parametrize("host", ["spark://m:7077", "local[2]", "yarn"])
def test_a_driver_on_a_cluster_is_asked_for_by_the_spec(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    connect(monkeypatch, host, **{"deploy-mode": "cluster"})
    with pytest.raises(SpecError, match=re.escape(f"expected the deploy mode client, but got 'cluster' for {host}; ")):
        chosen()


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
from skewless_airflow.runners.process_session import begin

begun = begin(["sleep", "600"], os.environ, Path.cwd(), Path("said"))
print(begun.pid, begun.born)
"""


def test_a_lock_of_the_starter_is_free_when_it_has_ended_though_what_it_started_lives(tmp_path: Path) -> None:
    command = ["bash", "-euc", _UNDER_A_LOCK, "bash", "lock", sys.executable, "-c", _BEGIN]
    said = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    pid, since = said.split()
    begun = Session(int(pid), float(since))
    try:
        assert begun.leads()
        taken = subprocess.run(["flock", "--nonblock", "lock", "true"], cwd=tmp_path, check=False)
        assert taken.returncode == 0, "the lock is still held"
    finally:
        end([begun], 5)


_PARENT = """
import subprocess
from skewless_airflow.runners.process_session import end_with_parent
with subprocess.Popen(["sleep", "60"], preexec_fn=end_with_parent) as child:
    print(child.pid, flush=True)
"""


def test_a_child_is_asked_to_end_when_its_parent_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", _PARENT], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout
        child = int(parent.stdout.readline())
        parent.kill()
    until(lambda: born(child) is None, "the child to end")


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
    os.kill(session.pid, signal.SIGTERM)
    until(lambda: not session.leads(), "its end")
    assert session.processes(), "the child did not listen"
    end([session], seconds=0.3)
    assert session.processes() == []
