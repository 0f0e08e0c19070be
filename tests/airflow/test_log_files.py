"""Airflow's log servers, which listen on every address, are not started; that logs are read all the same is seen in
``tests/system/test_backfill_run.py``, by a whole Airflow.
"""

from __future__ import annotations

import subprocess
import sys

import pytest
import yaml
from airflow.cli.cli_parser import get_parser

from deploy.cluster.running import COMPOSE_FILE
from skewless_airflow.observability.log_files import TRIGGERER_OPTIONS, LogFilesExecutor


def test_neither_the_executor_nor_the_triggerer_serves_logs() -> None:
    assert not LogFilesExecutor.serve_logs
    sources, lines = LogFilesExecutor(parallelism=1).get_task_log(None, 1)
    assert sources, "or Airflow would ask a log server"
    assert lines == []
    services = yaml.safe_load(COMPOSE_FILE.read_text())["services"]
    assert services["scheduler"]["environment"]["AIRFLOW__CORE__EXECUTOR"].endswith(".LogFilesExecutor")
    assert services["triggerer"]["command"] == ["airflow", "triggerer", *TRIGGERER_OPTIONS]
    assert get_parser().parse_args(["triggerer", *TRIGGERER_OPTIONS]).skip_serve_logs


@pytest.mark.long
def test_workers_are_forked_with_what_tasks_import() -> None:
    asked = (
        "import sys\n"
        "from skewless_airflow.observability.log_files import PRELOADED, LogFilesExecutor\n"
        "one = LogFilesExecutor(parallelism=1)\n"
        "seen = []\n"
        "one._spawn_worker = lambda: seen.append([name for name in PRELOADED if name not in sys.modules])\n"
        "one.start()\n"
        "assert seen == [[]], seen\n"
    )
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
