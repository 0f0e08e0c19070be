"""Workers are killed at any moment, on each runner's stand-in: each step has one application, each night one result."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.killed_workers import SPARK_STEPS
from tests.system.test_clients_aside import DATAPROC, variables_with

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

KILLS = int(os.environ.get("SKEWLESS_KILLS", "5"))


@pytest.mark.parametrize(
    "runner", ["databricks", "dataproc", "emr_serverless", "kubernetes", "livy", "spark_submit", "yarn"]
)
def test_each_step_has_one_application_and_each_night_one_result(tmp_path: Path, runner: str) -> None:
    command = [sys.executable, "-m", "tests.killed_workers", runner, str(tmp_path), str(KILLS)]
    environment = variables_with(tmp_path / "aside", DATAPROC) if runner == "dataproc" else dict(os.environ)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout)
    nights = outcome["nights"]
    assert sum(night["killed"] for night in nights) >= KILLS
    assert all(night["published"] == 1 and night["right"] for night in nights)
    assert not any(night["beside"] for night in nights)
    if runner != "spark_submit":  # whose driver ends with its task
        assert set(outcome["names"].values()) == {1}, outcome["names"]
        assert len(outcome["names"]) == len(nights) * len(SPARK_STEPS)
        assert all(night["deferred"] for night in nights)
