"""A submitted step ends with its task: the JVM, and the Python below it."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from airflow.sdk import Context

from skewless.run.directory import RunDirectory
from skewless_airflow.operators.spark_step import SkewlessSparkOperator
from skewless_airflow.runners import StepRunner, runner_of
from tests import airflow_setting
from tests.processes import until

pytestmark = [airflow_setting.IN_PROCESS, pytest.mark.usefixtures("airflow_database")]

#: It would go on for ten minutes, without ever asking the JVM. What it says is an address that a link is made of.
_BUSY = """
import os, pathlib, sys, time
pathlib.Path(sys.argv[1]).write_text(str(os.getpid()))
print("skewless: spark application app-1 at http://spark.example:4040", flush=True)
time.sleep(600)
"""


@pytest.fixture
def operator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SkewlessSparkOperator]:
    monkeypatch.setenv("SKEWLESS_WARM_DRIVER", "0")
    (tmp_path / "busy.py").write_text(_BUSY)
    one = SkewlessSparkOperator(task_id="busy", spark_step="stage")
    one.application, one.application_args = str(tmp_path / "busy.py"), [str(tmp_path / "pid")]
    one._runner = runner_of(one.step_of(RunDirectory(str(tmp_path / "run")), Context()))
    yield one
    one.on_kill()


def runner_of_task(operator: SkewlessSparkOperator) -> StepRunner:
    assert operator._runner is not None
    return operator._runner


def driver(tmp_path: Path) -> psutil.Process:
    mark = tmp_path / "pid"
    until(lambda: mark.exists() and mark.read_text(), "the driver to begin", 120)
    return psutil.Process(int(mark.read_text()))


def has_ended(process: psutil.Process) -> bool:
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


def test_on_kill_leaves_no_process_of_a_spark_submit(operator: SkewlessSparkOperator, tmp_path: Path) -> None:
    runner, said = runner_of_task(operator), list[str]()
    submitting = threading.Thread(target=lambda: said.extend(runner.lines()))
    submitting.start()
    python = driver(tmp_path)
    java = next(one for one in python.parents() if one.name() == "java")
    operator.on_kill()
    submitting.join(timeout=30)
    assert not submitting.is_alive()
    assert has_ended(python)
    assert has_ended(java)
    assert runner.failure().startswith("spark-submit ended with exit code ")


@pytest.mark.long
def test_a_step_ends_with_its_task_when_its_log_breaks(operator: SkewlessSparkOperator, tmp_path: Path) -> None:
    untellable: Any = {}  # no task instance in it, so that the link to the application cannot be made
    with pytest.raises(KeyError):
        operator._follow(runner := runner_of_task(operator), runner.lines(), untellable)
    assert runner.failure()
    with pytest.raises(psutil.NoSuchProcess):
        psutil.Process(int((tmp_path / "pid").read_text()))
