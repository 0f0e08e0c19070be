"""Steps whose drivers run on a cluster, in a whole Airflow: a try after a lost worker finds the driver that runs.

YARN is a stand-in (``tests.stand_in_yarn``); Airflow, the provider that submits and follows, and Spark are real.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from skewless.documents.ledger import balance
from skewless.run.directory import RESULT_STEP, RunDirectory
from tests.served_airflow import ServedAirflow, await_that, dag_of, served_airflow
from tests.stand_in_yarn import Yarn, stand_in_yarn

pytestmark = [pytest.mark.long, pytest.mark.timeout(1200)]

JOB = "yarn_words"
COUNTS = {"self": 900, "if": 300, "": 20, **{f"word-{n}": 1 + n % 9 for n in range(60)}}
SPEC = {
    "name": JOB,
    "input": {"path": "words"},
    "key": "word",
    "aggregates": {"n": "count"},
    "engine": "combine",
    "sharing": {"lease_seconds": 2},
    "routing": {"waves": [1], "reducers": 2},
    "output": {"path": "published/words", "files": 1},
}
STAGE = "stage_00.run"


class Night(NamedTuple):
    """A run whose stage lost its task, with its supervisor, while the driver of the stage was running."""

    state: str
    tries: dict[str, int]
    log: list[str]
    submitted: Counter[str]
    published: dict[str, int]
    run: RunDirectory


@pytest.fixture(scope="module")
def yarn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yarn]:
    with stand_in_yarn(tmp_path_factory.mktemp("yarn")) as yarn:
        yield yarn


@pytest.fixture(scope="module")
def airflow(tmp_path_factory: pytest.TempPathFactory, yarn: Yarn) -> Iterator[ServedAirflow]:
    folder = tmp_path_factory.mktemp("on-cluster")
    (folder / "root" / "words").mkdir(parents=True)
    words = [word for word, rows in COUNTS.items() for _ in range(rows)]
    pq.write_table(pa.table({"word": words}), folder / "root" / "words" / "0.parquet")
    # In a folder that no driver on a cluster sees.
    (spec := folder / "job.yaml").write_text(yaml.safe_dump(SPEC))
    extra = {"deploy-mode": "cluster", "yarn_resourcemanager_webapp_address": yarn.address}
    settings = {
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "yarn", "extra": extra}),
        "PATH": f"{yarn.programs}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_SEC": "2",
        "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "15",
        "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "3",
    }
    with served_airflow(folder, settings, dags={JOB: dag_of(spec)}) as served:
        yield served


@pytest.fixture(scope="module")
def night(airflow: ServedAirflow, yarn: Yarn) -> Night:
    rest, name = airflow.rest, f"{JOB}.{STAGE}"
    rest.trigger(JOB, "night")
    _hold_the_stage(yarn, name)
    _kill_its_task(airflow, "night")
    asked = len(yarn.asked)
    await_that(lambda: len(yarn.asked) > asked, "the next try to ask for the application")
    yarn.release()
    state = airflow.await_end(JOB, "night")
    tries = {one.task: one.tries for one in rest.tasks(JOB, "night")}
    log = rest.log_lines(JOB, "night", STAGE, tries[STAGE])
    submitted = Counter(one.name for one in yarn.applications())
    (published,) = (airflow.root / "published" / "words").glob("date=*")
    table = pq.read_table(published, partitioning=None)
    counts = dict(zip(table["word"].to_pylist(), table["n"].to_pylist(), strict=True))
    return Night(state, tries, log, submitted, counts, airflow.run(JOB, "night"))


def _hold_the_stage(yarn: Yarn, name: str) -> None:
    """Wait until the stage's driver is submitted, held, and asked for: then the task has kept its id."""
    await_that(lambda: bool(yarn.applications()), "prepare to be submitted")
    await_that(lambda: all(one.state()[0] != "RUNNING" for one in yarn.applications()), "prepare to end")
    yarn.hold()
    await_that(lambda: yarn.applications()[-1].name == name, "the stage to be submitted")
    application = yarn.applications()[-1].folder.name
    await_that(lambda: application in yarn.asked, "the task to ask for it")


def _kill_its_task(airflow: ServedAirflow, run_id: str) -> None:
    """Kill the task and its supervisor, as if the machine of the worker were lost."""
    (ident,) = [one.try_id for one in airflow.rest.tasks(JOB, run_id) if one.task == STAGE]
    processes = [psutil.Process(pid) for pid in airflow.session.processes()]
    # The supervisor, too, has the id in its title, and its parent is the scheduler.
    (task,) = [one for one in processes if " ".join(one.cmdline()).strip() == f"airflow worker -- {ident}"]
    supervisor = task.parent()
    assert supervisor is not None
    for one in (task, supervisor):
        one.send_signal(signal.SIGKILL)


def test_a_try_after_a_lost_worker_finds_the_application_that_runs(night: Night) -> None:
    assert night.state == "success"
    assert night.tries[STAGE] == 2
    assert [line for line in night.log if line.startswith("Reconnecting to existing job")]


def test_no_step_is_submitted_twice(night: Night) -> None:
    assert set(night.submitted.values()) == {1}, night.submitted
    steps = [name.removeprefix(f"{JOB}.") for name in night.submitted]
    assert set(steps) >= {"prepare", STAGE, "merge", "validate"}


def test_the_result_is_that_of_a_counter_and_the_ledger_balances(night: Night) -> None:
    assert night.published == COUNTS
    ledger = balance(night.run.job(), night.run.reports(), night.run.committed(RESULT_STEP).counts["rows"])
    assert (ledger.problems, ledger.input_rows) == ((), sum(COUNTS.values()))
