"""Killing a task stops Spark: the JVM, and the Python below it."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import psutil
import pytest
from airflow.sdk.exceptions import AirflowException

from skewless_airflow.operators.spark_step import SkewlessSparkOperator
from tests import airflow_setting

#: It would go on for ten minutes, without ever asking the JVM.
_BUSY = """
import os, pathlib, sys, time
pathlib.Path(sys.argv[1]).write_text(str(os.getpid()))
time.sleep(600)
"""


@airflow_setting.IN_PROCESS
@pytest.mark.usefixtures("airflow_database")
def test_on_kill_leaves_no_process_of_a_spark_submit(tmp_path: Path) -> None:
    script, mark = tmp_path / "busy.py", tmp_path / "pid"
    script.write_text(_BUSY)
    operator = SkewlessSparkOperator(task_id="busy", entry="run_stage.py")
    operator.application, operator.application_args = str(script), [str(mark)]
    hook = operator._hook = operator._get_hook()
    ended: list[str] = []

    def submit() -> None:
        try:
            hook.submit(operator.application)
        except AirflowException as err:
            ended.append(str(err))

    submitting = threading.Thread(target=submit)
    submitting.start()
    deadline = time.monotonic() + 120
    while not (mark.exists() and mark.read_text()) and time.monotonic() < deadline:
        time.sleep(0.1)
    driver = psutil.Process(int(mark.read_text()))
    assert hook._submit_sp is not None
    submitted = psutil.Process(hook._submit_sp.pid)
    assert submitted in driver.parents()
    operator.on_kill()
    submitting.join(timeout=30)
    assert not submitting.is_alive()
    assert ended
    for process in (driver, submitted):
        assert not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    operator._close_pipe()
