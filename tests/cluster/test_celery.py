"""Celery with two workers that share no disk: a job runs whole, and one worker is killed in the middle of a stage.

Inputs, run directories, results and logs are in a bucket. What each process has on a disk, no other one sees.
"""

from __future__ import annotations

import contextlib
import io
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple
from urllib.parse import quote

import httpx
import obstore
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from obstore.store import from_url

from skewless.documents.ledger import balance
from skewless.run.directory import RESULT_STEP, RunDirectory, stage_step
from skewless_airflow.run_store import safe_run_id
from skewless_lake.catalogs import open_catalog
from tests.airflow_rest import AirflowRest
from tests.cluster import running
from tests.cluster.celery_workers import BUCKET, WORKERS, celery_cluster
from tests.cluster.running import Cluster, Home
from tests.cluster.started import client_of, home_of_tests
from tests.listening import LOOPBACK, drivers_of, listening
from tests.object_stores import as_client

pytestmark = [pytest.mark.long, pytest.mark.timeout(1500)]

JOB, TABLE = "celery_words", "marts.words"
#: Rows of each word: one has two thirds of them.
COUNTS = {"self": 400_000, "if": 150_000, "": 20_000, **{f"word-{n}": 10 + n % 400 for n in range(1_000)}}
SPEC = {
    "name": JOB,
    "input": {"path": f"{BUCKET}/words"},
    "key": "word",
    "aggregates": {"occurrences": "count", "total": {"function": "sum", "column": "size"}},
    "engine": "staged",
    "sharing": {"lease_seconds": 2},
    "routing": {"waves": [1], "reducers": 4, "stage_overhead": 0},
    "output": {"format": "iceberg", "path": f"lake.{TABLE}"},
}
KILLED_IN = "stage_00.run"


class Task(NamedTuple):
    tries: int
    state: str
    host: str


class Night(NamedTuple):
    state: str
    tasks: dict[str, Task]
    run: RunDirectory
    published: dict[str, tuple[int, int]]


class Loss(NamedTuple):
    """What was seen of the worker that a night lost in the middle of a stage.

    Attributes:
        committed: whether the stage had its commit when the worker was lost.
        left: the processes of the worker's driver that are there some seconds later.
        attempt: whose attempt the stage had committed while the worker was away.
    """

    worker: str
    committed: bool
    left: list[psutil.Process]
    attempt: str = ""


class Nights(NamedTuple):
    """A whole night, one in which a worker was away for a while, and one in which a worker was killed."""

    home: Home
    cluster: Cluster
    rest: AirflowRest
    whole: Night
    parted: Night
    killed: Night
    away: Loss
    dead: Loss


@pytest.fixture(scope="module")
def nights() -> Iterator[Nights]:
    with home_of_tests() as home, celery_cluster(home, SPEC) as cluster, as_client(client_of(home, cluster)):
        _put_words()
        with AirflowRest(cluster.url, running.USER, running.password(home)) as rest:
            rest.wait_for_dag(JOB, 120)
            rest.set_paused(JOB, False)
            rest.trigger(JOB, "whole")
            rest.await_end(JOB, "whole", 600)
            whole = _night(home, rest, "whole")
            assert whole.state == "success", whole.tasks
            away = _part(rest, cluster)
            parted = _night(home, rest, "parted")
            dead = _kill(rest, cluster)
            yield Nights(home, cluster, rest, whole, parted, _night(home, rest, "killed"), away, dead)


def _part(rest: AirflowRest, cluster: Cluster) -> Loss:
    """Stop everything of the worker that works on the stage, and let it go on once the other one has done the stage."""
    worker = _in_the_stage(rest, "parted")
    stopped = [psutil.Process(pid) for pid in cluster.sessions[worker].processes()] + _drivers("parted", worker)
    _signal(stopped, signal.SIGSTOP)
    committed = _committed("parted")
    try:
        _await(lambda: _committed("parted"), 300, lambda: f"the other worker; {_tasks(rest, 'parted')}")
        attempt = _run("parted").committed(stage_step(0)).attempt
    finally:
        _signal(stopped, signal.SIGCONT)
    with contextlib.suppress(AssertionError):
        _await(lambda: not _of(stopped, "warm_driver.py"), 60, lambda: "the driver that was away to end")
    rest.await_end(JOB, "parted", 600)
    return Loss(worker, committed, _of(stopped, "warm_driver.py"), attempt)


def _kill(rest: AirflowRest, cluster: Cluster) -> Loss:
    worker = _in_the_stage(rest, "killed")
    assert _drivers("killed", worker)
    cluster.kill(worker)
    committed = _committed("killed")
    with contextlib.suppress(AssertionError):
        _await(lambda: not _drivers("killed", worker), 60, lambda: "its driver to end")
    left = _drivers("killed", worker)
    rest.await_end(JOB, "killed", 600)
    return Loss(worker, committed, left)


def _in_the_stage(rest: AirflowRest, run_id: str) -> str:
    """Start a run, and return the worker that works on the stage, as soon as it holds the stage's lease."""
    rest.trigger(JOB, run_id)
    lease = f"data/runs/{JOB}/{run_id}/{stage_step(0)}/owner/"
    _await(lambda: bool(_keys(lease)), 400, lambda: f"the stage; {_tasks(rest, run_id)}")
    return _tasks(rest, run_id)[KILLED_IN].host


def _committed(run_id: str) -> bool:
    # A listing has what lies below a prefix, and not the object of that name.
    return any(key.endswith("/COMMIT.json") for key in _keys(f"data/runs/{JOB}/{run_id}/{stage_step(0)}"))


def _signal(processes: list[psutil.Process], number: signal.Signals) -> None:
    """Send a signal to all of them that are still there: one may end by itself after it was listed."""
    for one in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            one.send_signal(number)


def _of(processes: list[psutil.Process], words: str) -> list[psutil.Process]:
    """Those that live, by words of their command lines."""
    found = []
    for one in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            if one.status() != psutil.STATUS_ZOMBIE and words in " ".join(one.cmdline()):
                found.append(one)
    return found


def _put_words() -> None:
    words = [word for word, rows in COUNTS.items() for _ in range(rows)]
    for number in range(16):
        mine, out = words[number::16], io.BytesIO()
        sizes = pa.array([len(word) for word in mine], pa.int64())
        pq.write_table(pa.table({"word": mine, "size": sizes}), out)
        obstore.put(_bucket(), f"words/{number}.parquet", out.getvalue())


def _bucket() -> obstore.store.ObjectStore:
    return from_url(BUCKET, client_options={"allow_http": True})


def _keys(prefix: str) -> list[str]:
    return [str(one["path"]) for page in obstore.list(_bucket(), prefix) for one in page]


def _night(home: Home, rest: AirflowRest, run_id: str) -> Night:
    catalog = open_catalog("lake", str(home.folder))
    rows = catalog.load_table(TABLE).scan().to_arrow().to_pylist() if catalog.table_exists(TABLE) else []
    catalog.close()  # and its connections
    published = {row["word"]: (row["occurrences"], row["total"]) for row in rows}
    return Night(rest.run_state(JOB, run_id), _tasks(rest, run_id), _run(run_id), published)


def _run(run_id: str) -> RunDirectory:
    return RunDirectory(f"{BUCKET}/data/runs/{JOB}/{safe_run_id(run_id)}")


def _tasks(rest: AirflowRest, run_id: str) -> dict[str, Task]:
    found = rest.of_run("GET", JOB, run_id, "/taskInstances?limit=100")["task_instances"]
    return {one["task_id"]: Task(one["try_number"], one["state"], one["hostname"] or "") for one in found}


def _drivers(run_id: str, worker: str) -> list[psutil.Process]:
    """The drivers of one worker. A driver of the other worker may wait there for the next step of the run."""
    found = []
    for one in drivers_of(f"runs/{JOB}/{run_id}"):
        with contextlib.suppress(psutil.NoSuchProcess):
            if one.environ().get("HOME", "").endswith(f"/{worker}/home"):
                found.append(one)
    return found


def _await(happened: Callable[[], bool], seconds: float, what: Callable[[], str]) -> None:
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline, f"waited {seconds} s for {what()}"
        time.sleep(0.05)


@pytest.mark.parametrize("run", ["whole", "parted", "killed"])
def test_the_counts_are_those_of_a_counter(nights: Nights, run: str) -> None:
    night: Night = getattr(nights, run)
    assert night.state == "success", night.tasks
    assert night.published == {word: (rows, len(word) * rows) for word, rows in COUNTS.items()}


@pytest.mark.parametrize("run", ["whole", "parted", "killed"])
def test_the_ledger_balances(nights: Nights, run: str) -> None:
    found: RunDirectory = getattr(nights, run).run
    ledger = balance(found.job(), found.reports(), found.committed(RESULT_STEP).counts["rows"])
    assert (ledger.problems, ledger.input_rows) == ((), sum(COUNTS.values()))


def test_the_tasks_of_a_run_land_on_both_workers(nights: Nights) -> None:
    assert {task.host for task in nights.whole.tasks.values() if task.state == "success"} == set(WORKERS)
    assert {task.tries for task in nights.whole.tasks.values()} <= {0, 1}


@pytest.mark.parametrize(("run", "loss"), [("parted", "away"), ("killed", "dead")])
def test_the_worker_was_lost_in_the_middle_of_the_stage_and_the_other_one_did_it(
    nights: Nights, run: str, loss: str
) -> None:
    night, lost = getattr(nights, run), getattr(nights, loss)
    assert not lost.committed
    (other,) = set(WORKERS) - {lost.worker}
    assert night.tasks[KILLED_IN] == Task(2, "success", other)
    assert [name for name, task in night.tasks.items() if task.tries > 1] == [KILLED_IN]


@pytest.mark.parametrize("loss", ["away", "dead"])
def test_the_driver_of_a_lost_worker_ends(nights: Nights, loss: str) -> None:
    assert getattr(nights, loss).left == []


def test_a_worker_that_comes_back_changes_nothing_of_what_the_other_one_has_done(nights: Nights) -> None:
    assert nights.parted.run.committed(stage_step(0)).attempt == nights.away.attempt


def test_the_steps_on_a_worker_share_a_driver(nights: Nights) -> None:
    applications: dict[str, set[str]] = {}
    for name, task in nights.whole.tasks.items():
        if task.state == "success":
            lines = nights.rest.log_lines(JOB, "whole", name, task.tries)
            found = {line.split()[2] for line in lines if line.startswith("spark application ")}
            applications.setdefault(task.host, set()).update(found)
    assert any(applications.values())
    assert [worker for worker, found in applications.items() if len(found) > 1] == []


@pytest.mark.parametrize("page", ["skew", "quality"])
def test_the_pages_are_read_from_the_bucket(nights: Nights, page: str) -> None:
    with httpx.Client(base_url=nights.cluster.url, timeout=60, trust_env=False) as client:
        login = {"username": running.USER, "password": running.password(nights.home)}
        token = client.post("/auth/token", json=login).raise_for_status().json()["access_token"]
        client.headers["Authorization"] = f"Bearer {token}"
        answer = client.get(f"/skewless/dags/{JOB}/runs/{quote('killed', safe='')}/{page}")
    assert answer.status_code == 200
    assert f"{sum(COUNTS.values()):,}" in answer.text


def test_the_logs_of_both_workers_are_read_from_the_bucket(nights: Nights) -> None:
    read = Counter[str]()
    for name, task in nights.whole.tasks.items():
        if task.state == "success":
            lines = nights.rest.log_lines(JOB, "whole", name, task.tries)
            read[task.host] += any(line.startswith("committed") or "published" in line for line in lines)
            assert _keys(f"logs/dag_id={JOB}/run_id=whole/task_id={name}/"), name
    assert all(read[worker] for worker in WORKERS), read


def test_nothing_of_a_run_is_on_a_disk_that_workers_and_the_api_server_could_share(nights: Nights) -> None:
    outside = [path for path in nights.home.folder.rglob("*") if "objects" not in path.parts]
    names = {path.name for path in outside}
    assert not names & {"job.json", "COMMIT.json", "whole", "killed"}
    assert not [path for path in outside if path.suffix == ".log" and f"dag_id={JOB}" in str(path)]


def test_all_of_it_listens_on_the_loopback_only(nights: Nights) -> None:
    addresses = {one for session in nights.cluster.sessions.values() for one in listening(session.processes())}
    assert addresses
    assert not [address for address in addresses if not address.startswith(LOOPBACK)]
