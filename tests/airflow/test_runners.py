"""Who runs a step: its connection says so, and one more runner is one module and one line of a table. No Spark."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk import DAG

from skewless.errors import SpecError
from skewless.run.directory import RunDirectory
from skewless_airflow import runners
from skewless_airflow.operators.spark_step import SkewlessSparkOperator
from skewless_airflow.run_store import run_location
from skewless_airflow.runners import Step, StepRunner, runner_of
from skewless_airflow.runners.process_session import Session, ask, begin, end
from skewless_airflow.runners.submit import SubmittedStep
from skewless_airflow.runners.warm_driver import DriverStep, code_stamp, worker_folders
from tests import airflow_setting
from tests.airflow.players import await_that
from tests.airflow.recorded_run import NIGHT
from tests.airflow.test_dag_structure import SPEC
from tests.tiers import mostly_long

pytestmark = [airflow_setting.IN_PROCESS, pytest.mark.usefixtures("airflow_database")]


def connect(monkeypatch: pytest.MonkeyPatch, host: str, conn_type: str = "spark", **extra: str) -> None:
    given = {"conn_type": conn_type, "host": host, "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(given))


def chosen(conf: dict[str, str] | None = None, **given: Any) -> StepRunner:
    with DAG("words", schedule=None):
        operator = SkewlessSparkOperator(task_id="stage", entry="run_stage.py", **given)
    operator.application_args = ["--stage", "0"]
    operator.conf = {**(operator.conf or {}), **(conf or {})}
    return runner_of(operator.step_of(RunDirectory("/nowhere")))


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
        assert "run_stage.py" not in " ".join(runner._settings.submit)


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


def test_a_connection_that_would_start_the_driver_elsewhere_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    connect(monkeypatch, "yarn", **{"deploy-mode": "cluster"})
    with pytest.raises(SpecError, match=r"spark_default: expected the deploy mode client, but got 'cluster'; use"):
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


class Toy:
    """A runner: the step is a Python that the task starts."""

    def __init__(self, step: Step) -> None:
        self._step, self._code = step, -1

    def lines(self) -> Iterator[str]:
        command = [sys.executable, self._step.entry, *self._step.arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        self._code = done.returncode
        yield from done.stdout.splitlines()

    def failure(self) -> str:
        return f"the toy ended with {self._code}" if self._code else ""

    def stop(self) -> int:
        return 0

    def close(self) -> None: ...


@pytest.mark.parametrize(("rows", "state"), mostly_long([(10, "success"), (0, "failed")], (10, "success")))
def test_one_more_runner_is_a_module_and_a_line_of_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dags_folder: Path, rows: int, state: str
) -> None:
    toy = lambda step: Toy(step) if step.master == "toy" else None  # noqa: E731
    monkeypatch.setattr(runners, "RUNNERS", (toy, *runners.RUNNERS))
    connect(monkeypatch, "toy")
    monkeypatch.setenv("SKEWLESS_ROOT", str(tmp_path))
    if rows:
        (tmp_path / "words").mkdir()
        pq.write_table(pa.table({"word": ["self"] * rows}), tmp_path / "words" / "0.parquet")
    spec = {**SPEC, "name": f"toy_{rows}", "input": {"path": "words"}, "key": "word"}
    (tmp_path / "toy.yaml").write_text(yaml.safe_dump(spec))
    file = dags_folder / f"toy_{rows}.py"
    file.write_text(
        f"# airflow\nfrom skewless_airflow import build_dag\ndag = build_dag({str(tmp_path / 'toy.yaml')!r})\n"
    )
    dag = DagBag(file).dags[f"toy_{rows}"]
    done = dag.test(logical_date=NIGHT, run_after=NIGHT, mark_success_pattern=re.compile("(?!prepare$).*"))
    assert {ti.task_id: str(ti.state) for ti in done.get_task_instances()}["prepare"] == state
    run = RunDirectory(run_location(dag.dag_id, done.run_id))
    assert run.exists("job.json") is (state == "success")
    assert bool(run.fs.glob(f"{run.root}/failures/prepare-*.json")) is (state == "failed")


def test_code_that_was_changed_added_or_taken_away_has_another_stamp(tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "old.py").write_text("")
    (tmp_path / "module.py").write_text("")
    places, seen = [tmp_path / "package", tmp_path / "module.py"], []
    seen.append(code_stamp(places))
    assert code_stamp(places) == seen[0]
    (tmp_path / "module.py").write_text("answer = 42")
    seen.append(code_stamp(places))
    (tmp_path / "package" / "new.py").write_text("")
    seen.append(code_stamp(places))
    (tmp_path / "package" / "old.py").unlink()
    seen.append(code_stamp(places))
    assert len(set(seen)) == 4


def test_the_code_of_workers_is_ours_and_that_of_whoever_registers_aggregates() -> None:
    assert {"skewless", "skewless_spark"} <= {folder.name for folder in worker_folders()}


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
_HEARTBEAT = """
import sys, time
from pathlib import Path
from skewless_leases.liveness.heartbeat import Heartbeat

beat = Heartbeat(f"file://{Path.cwd()}/leases", "worker", 1, 60.0)
beat.keep()
print(*(path.readlink() for path in Path(f"/proc/{beat.pid}/fd").iterdir()))
beat.stop()
"""


def _under_a_lock(folder: Path, script: str) -> str:
    command = ["bash", "-euc", _UNDER_A_LOCK, "bash", "lock", sys.executable, "-c", script]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout


def test_a_lock_of_the_starter_is_free_when_it_has_ended_though_what_it_started_lives(tmp_path: Path) -> None:
    begun = Session(*map(int, _under_a_lock(tmp_path, _BEGIN).split()))
    try:
        assert begun.leads()
        taken = subprocess.run(["flock", "--nonblock", "lock", "true"], cwd=tmp_path, check=False)
        assert taken.returncode == 0, "the lock is still held"
    finally:
        end([begun], 5)


def test_a_heartbeat_has_no_file_of_its_worker_s(tmp_path: Path) -> None:
    files = _under_a_lock(tmp_path, _HEARTBEAT)
    assert "pipe:" in files
    assert str(tmp_path / "lock") not in files


def test_a_session_is_its_first_process_and_no_other_that_has_its_number(tmp_path: Path) -> None:
    script = (
        "import subprocess, sys, time; subprocess.Popen(['sleep', '60']); print('begun', flush=True); time.sleep(60)"
    )
    begun = begin([sys.executable, "-c", script], dict(os.environ), tmp_path, tmp_path / "said")
    try:
        await_that(lambda: len(begun.processes()) == 2, "a child of the session")
        assert begun.leads()
        reused = Session(begun.pid, begun.born - 1)  # its number was given to another process since
        assert (reused.leads(), reused.processes()) == (False, [])
        os.kill(begun.pid, signal.SIGKILL)
        os.waitpid(begun.pid, 0)
        assert (begun.leads(), len(begun.processes())) == (False, 1)
    finally:
        end([begun], 5)
    assert begun.processes() == []


def test_a_session_ends_with_all_that_it_started_though_it_does_not_listen(tmp_path: Path) -> None:
    # A child of a process group of its own, as components of Airflow make.
    script = "set -m; (trap '' TERM; sleep 60) & echo up; wait"
    session = begin(["bash", "-c", script], dict(os.environ), tmp_path, tmp_path / "output")
    await_that(lambda: "up" in (tmp_path / "output").read_text(), "its child")
    assert len(session.processes()) >= 2
    ask({session: signal.SIGTERM}, seconds=0.3)
    assert not session.leads()
    assert session.processes(), "the child did not listen"
    end([session], seconds=0.3)
    assert session.processes() == []
