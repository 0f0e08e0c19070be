"""Nights of a job by Livy, in a whole Airflow whose workers are killed: one application a step, and no slot is held.

A deferred task that is marked as failed ends its application, before it is cleared.

Livy is a stand-in (``tests.stand_in_livy``); Airflow, its provider's operator and trigger, and ``spark-submit`` are
real. A worker is killed, with its supervisor, in the middle of a request: before a batch is posted, after it was
accepted and before Livy has answered, or when the task goes on after its trigger.
"""

import os
import re
import signal
from collections import Counter
from typing import NamedTuple

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from skewless.documents.ledger import balance
from skewless.run.directory import RESULT_STEP, RunDirectory
from tests.served_airflow import ServedAirflow, await_that, dag_of, served_airflow
from tests.stand_in_livy import Livy, stand_in_livy

pytestmark = [pytest.mark.long, pytest.mark.timeout(7200)]

JOB = "livy_words"
COUNTS = {"self": 900, "if": 300, "": 20, **{f"word-{n}": 1 + n % 9 for n in range(60)}}
SPEC = {
    "name": JOB,
    "input": {"path": "words"},
    "key": "word",
    "aggregates": {"n": "count"},
    "routing": {"waves": [1], "reducers": 2},
    "airflow": {"retries": 4},
    "spark": {
        "submit": {"runner": "livy", "livy_conn_id": "livy_night", "polling_interval": 1, "driver_memory": "700m"},
        "conf": {"spark.sql.shuffle.partitions": 2, "spark.ui.enabled": "false"},
    },
    "output": {"path": "published/words", "files": 1},
}
STAGE = "stage_00.run"
STEPS = ("prepare", STAGE, "merge", "validate")
MOMENTS = ("list", "posted", "resumed")
KILLS = int(os.environ.get("SKEWLESS_KILLS", "10"))


_TASK = re.compile(r"airflow worker -- [0-9a-f-]{36}")


class Nights(NamedTuple):
    kills: Counter[str]
    states: list[str]
    names: Counter[str]
    slots: int
    days: list[dict[str, int]]
    runs: list[RunDirectory]
    log: list[str]


class Killer:
    """Kills the task that asks, in the middle of its request: once at each moment of a step."""

    def __init__(self) -> None:
        self.airflow: ServedAirflow | None = None
        self.moments: list[str] = []

    def __call__(self, moment: str) -> None:
        wanted = MOMENTS[len(self.moments) % len(MOMENTS)]
        if self.airflow is None or moment != wanted or len(self.moments) >= KILLS:
            return
        processes = [psutil.Process(pid) for pid in self.airflow.session.processes()]
        (task,) = [one for one in processes if _TASK.fullmatch(" ".join(one.cmdline()).strip())]
        for one in (task, *task.parents()[:1]):  # its supervisor, as if the machine of the worker were lost
            one.send_signal(signal.SIGKILL)
        self.moments.append(moment)


@pytest.fixture(scope="module")
def nights(tmp_path_factory: pytest.TempPathFactory) -> Nights:
    folder, killer = tmp_path_factory.mktemp("livy"), Killer()
    (folder / "root" / "words").mkdir(parents=True)
    words = [word for word, rows in COUNTS.items() for _ in range(rows)]
    pq.write_table(pa.table({"word": words}), folder / "root" / "words" / "0.parquet")
    (spec := folder / "job.yaml").write_text(yaml.safe_dump(SPEC))
    with stand_in_livy(folder / "batches") as livy:
        livy.watch = killer
        settings = {
            "AIRFLOW_CONN_LIVY_NIGHT": livy.connection,
            "SKEWLESS_RUNS": (folder / "root" / "runs").as_uri(),
            "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_SEC": "1",
            "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "8",
            "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "1",
        }
        with served_airflow(folder, settings, dags={JOB: dag_of(spec)}) as airflow:
            return _nights(airflow, livy, killer)


def _nights(airflow: ServedAirflow, livy: Livy, killer: Killer) -> Nights:
    rest, slots, states, days, runs = airflow.rest, -1, list[str](), [], []
    while not states or (len(killer.moments) < KILLS and states[-1] == "success"):
        night = f"night-{len(states)}"
        rest.trigger(JOB, night)
        if not states:
            await_that(lambda: rest.states(JOB, "night-0")["prepare"] in {"success", "failed"}, "prepare to end")
            livy.hold()
            await_that(lambda: rest.states(JOB, "night-0")[STAGE] == "deferred", "the stage to be deferred")
            slots = rest.call("GET", "/pools/default_pool")["running_slots"]
            await_that(lambda: livy.batches[-1].followed, "its trigger to run")  # before, Airflow asks none to end it
            rest.of_run("PATCH", JOB, night, f"/taskInstances/{STAGE}", {"new_state": "failed"})
            await_that(lambda: livy.batches[-1].deleted, "the batch to end with its task")
            livy.release()
            await_that(lambda: rest.run_state(JOB, "night-0") == "failed", "the run to end")
            rest.of_run("POST", JOB, night, "/clear", {"dry_run": False, "only_failed": True})
        states.append(airflow.await_end(JOB, night))
        killer.airflow = airflow
        runs.append(RunDirectory(f"{airflow.root.as_uri()}/runs/{JOB}/{night}"))
        (published,) = (airflow.root / "published" / "words").glob("date=*")
        table = pq.read_table(published, partitioning=None)
        days.append(dict(zip(table["word"].to_pylist(), table["n"].to_pylist(), strict=True)))
    names = Counter(batch.name for batch in livy.batches if not batch.deleted)
    return Nights(Counter(killer.moments), states, names, slots, days, runs, rest.log_lines(JOB, "night-0", STAGE, 2))


def test_whatever_worker_is_killed_each_step_has_one_application_and_none_holds_a_slot(nights: Nights) -> None:
    assert nights.slots == 0
    assert nights.kills.total() == KILLS
    assert len(nights.kills) == min(KILLS, len(MOMENTS))
    assert set(nights.names.values()) == {1}, nights.names
    assert len(nights.names) == len(nights.states) * len(STEPS), nights.names


def test_each_night_ends_well_and_publishes_its_day(nights: Nights) -> None:
    assert set(nights.states) == {"success"}
    for day, run in zip(nights.days, nights.runs, strict=True):
        assert day == COUNTS
        ledger = balance(run.job(), run.reports(), run.committed(RESULT_STEP).counts["rows"])
        assert (ledger.problems, ledger.input_rows) == ((), sum(COUNTS.values()))


def test_the_log_of_the_task_has_the_lines_of_the_step(nights: Nights) -> None:
    assert [line for line in nights.log if "stage 0: " in line and "rows admitted" in line]
