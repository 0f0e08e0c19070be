"""Workers are killed at any moment, on each runner's stand-in: each step has one application, each night one result."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.killed_workers import FIRST_FAILS, SPARK_STEPS
from tests.system.test_clients_aside import DATAPROC, variables_with

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

KILLS = int(os.environ.get("SKEWLESS_KILLS", "5"))
SERVICES = ("databricks", "dataproc", "emr_serverless", "kubernetes", "livy", "yarn")


def outcome_of(runner: str, folder: Path, **variables: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.killed_workers", runner, str(folder), str(KILLS)]
    environment = variables_with(folder / "aside", DATAPROC) if runner == "dataproc" else dict(os.environ)
    done = subprocess.run(command, env={**environment, **variables}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    outcome: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    nights = outcome["nights"]
    assert sum(night["killed"] for night in nights) >= KILLS
    assert all(night["published"] == 1 and night["right"] for night in nights)
    assert not any(night["beside"] for night in nights)
    return outcome


@pytest.mark.parametrize("runner", SERVICES)
def test_each_step_has_one_application_and_each_night_one_result(tmp_path: Path, runner: str) -> None:
    outcome = outcome_of(runner, tmp_path)
    assert set(outcome["names"].values()) == {1}, outcome["names"]
    assert len(outcome["names"]) == len(outcome["nights"]) * len(SPARK_STEPS)
    assert all(night["deferred"] for night in outcome["nights"])


@pytest.mark.parametrize("runner", ["databricks", "kubernetes", "livy", "yarn"])
def test_after_one_that_has_failed_each_step_has_one_more(tmp_path: Path, runner: str) -> None:
    outcome = outcome_of(runner, tmp_path, **{FIRST_FAILS: "yes"})
    assert set(outcome["names"].values()) == {1}, outcome["names"]
    assert len(outcome["names"]) == 2 * len(outcome["nights"]) * len(SPARK_STEPS)


def test_a_driver_of_spark_submit_ends_with_its_task(tmp_path: Path) -> None:
    outcome_of("spark_submit", tmp_path)
