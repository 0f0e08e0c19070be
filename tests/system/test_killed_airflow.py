"""Scheduler, API server, task and driver are killed at once while a stage runs; they come back, and the day is right.

Deaths at every other moment are played by ``tests/simulation``, which kills the same code at each of its file events.
"""

import contextlib
import time
from collections import Counter
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from deploy import local as standalone
from skewless.documents.ledger import balance
from skewless.run.directory import RESULT_STEP, RunDirectory
from skewless_airflow.run_store import safe_run_id
from tests import airflow_rest
from tests.listening import drivers_of
from tests.processes import until

pytestmark = [pytest.mark.long, pytest.mark.timeout(1200)]

JOB, DAY = "nightly", "2026-03-02"
PATIENCE_SECONDS = 420.0
#: Airflow notices a death after minutes; these are what its documentation says to change.
SETTINGS = {
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "25",
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "2",
    "AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "5",
    "AIRFLOW__SCHEDULER__TASK_QUEUED_TIMEOUT": "40",
    "SKEWLESS_DRIVER_MEMORY": "1g",
}
PAGES = [f"page-{number % 97}" if number % 2 else "hot" for number in range(6_000)]


def write_job(folder: Path) -> None:
    """The input of a day, the result of an earlier run of it, and the spec."""
    lake, published = folder / "data" / "lake" / DAY, folder / "data" / "published" / f"date={DAY}"
    for place in (lake, published, folder / "catalog"):
        place.mkdir(parents=True)
    for number in range(3):
        pq.write_table(pa.table({"page": PAGES[number::3]}), lake / f"{number}.parquet")
    pq.write_table(pa.table({"page": ["before"], "visits": [1]}), published / "part-00000.parquet")
    spec = {
        "name": JOB,
        "input": {"path": "lake/{date}"},
        "key": "page",
        "aggregates": {"visits": "count"},
        "engine": "staged",
        "sharing": {"lease_seconds": 1.0},
        "routing": {"waves": [1], "reducers": 2, "first_plan": ["sample"]},
        "output": {"path": "published", "files": 1},
    }
    (folder / "catalog" / f"{JOB}.yaml").write_text(yaml.safe_dump(spec, sort_keys=False))


def published(folder: Path) -> Counter[str]:
    rows = pq.read_table(folder / "data" / "published" / f"date={DAY}", partitioning=None)
    return Counter(dict(zip(rows["page"].to_pylist(), rows["visits"].to_pylist(), strict=True)))


def kill_all(home: Path, root: Path) -> None:
    """SIGKILL of every process of Airflow and of its drivers."""
    running = standalone.recorded(home)
    assert running is not None
    for process in drivers_of(str(root)):
        process.kill()
    while pids := [pid for pid in running.processes() if psutil.pid_exists(pid)]:
        for pid in pids:
            with contextlib.suppress(psutil.NoSuchProcess):
                psutil.Process(pid).kill()
    while not standalone.port_free(running.port):  # the kernel closes it soon after the death
        time.sleep(0.05)


def test_a_run_of_which_everything_was_killed_ends_with_the_right_result(tmp_path: Path) -> None:
    write_job(tmp_path)
    root, home = tmp_path / "data", tmp_path / "airflow"
    settings = {"SKEWLESS_ROOT": str(root), "SKEWLESS_CATALOG": str(tmp_path / "catalog"), **SETTINGS}
    with airflow_rest.up(home, settings, patience_seconds=PATIENCE_SECONDS) as rest:
        rest.wait_for_dag(JOB, 120)
        rest.set_paused(JOB, paused=False)
        ident = rest.trigger(JOB, "killed", conf={"date": DAY})
        run = RunDirectory(f"{root}/runs/{JOB}/{safe_run_id(ident)}")
        until(Path(run.root, "stages/0000/attempts").exists, "a stage to begin", PATIENCE_SECONDS)
        running = standalone.recorded(home)
        assert running is not None
        kill_all(home, root)
        assert published(tmp_path) == {"before": 1}
        standalone.wait_until_healthy(home, standalone.start(home, running.port, settings))
        if rest.await_end(JOB, ident, PATIENCE_SECONDS) != "success":
            assert published(tmp_path) == {"before": 1}, "a run that failed has published"
            rest.of_run("POST", JOB, ident, "/clear", {"dry_run": False, "only_failed": True})
            assert rest.await_end(JOB, ident, PATIENCE_SECONDS) == "success"
        assert published(tmp_path) == Counter(PAGES)
        assert not balance(run.job(), run.reports(), run.committed(RESULT_STEP).counts["rows"]).problems
