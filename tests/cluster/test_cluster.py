"""The services of docker-compose.yml as processes: a job runs on them, and a worker dies in the middle of it.

All of it is real: PostgreSQL, Spark's master and two workers, Airflow's four parts. It takes minutes to
bring up, so it is brought up once, one run is made, and the tests look at what it left.
"""

import collections
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import httpx
import psycopg
import pyarrow.parquet as pq
import pytest

from skewless.documents.ledger import balance
from skewless.run.directory import RESULT_STEP, RunDirectory
from skewless_airflow.run_store import safe_run_id
from tests.airflow_rest import FINISHED_RUN, AirflowRest
from tests.cluster import running
from tests.cluster.running import OUTPUT, SECRETS, Cluster, home_of_tests, started
from tests.cluster.words import write_words
from tests.listening import LOOPBACK, listening
from tests.processes import until

pytestmark = [pytest.mark.long, pytest.mark.timeout(1500)]

JOB = "cluster_words"
#: Rows of each key: one holds a third of them.
COUNTS = {"self": 400_000, "if": 150_000, "": 20_000, **{f"word-{n}": 10 + n % 400 for n in range(3_000)}}
SPEC = {
    "name": JOB,
    "input": {"path": "words"},
    "key": "word",
    "engine": "staged",
    "aggregates": {"occurrences": "count", "total": {"function": "sum", "column": "size"}},
    "routing": {"waves": [1, 3], "reducers": 4, "stage_overhead": 0},
    "output": {"path": "published/words", "files": 2},
}
#: A stage of the cluster: the first one has shown by then that both workers work.
KILLED_IN = "stage_01.run"


class Night(NamedTuple):
    home: Path
    cluster: Cluster
    run_id: str
    state: str
    tries: dict[str, int]
    killed_during: list[dict[str, Any]]

    @property
    def run(self) -> RunDirectory:
        return RunDirectory(f"{self.home}/data/runs/{JOB}/{safe_run_id(self.run_id)}")


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    with home_of_tests() as home:
        yield home


@pytest.fixture(scope="module")
def cluster(home: Path) -> Iterator[Cluster]:
    write_words(home / "data" / "words", COUNTS, files=16)
    with started(home, SPEC) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def night(home: Path, cluster: Cluster) -> Night:
    with AirflowRest(cluster.url, running.USER, running.password(home)) as rest:
        rest.wait_for_dag(JOB, 120)
        run_id = rest.trigger(JOB)
        rest.set_paused(JOB, False)
        # The attempt has begun to write: its tasks are running on the workers.
        begun = home / "data" / "runs" / JOB / safe_run_id(run_id) / "stages" / "0001" / "attempts"
        until(lambda: begun.is_dir() and any(begun.iterdir()), lambda: f"stage 1; {_told(home, rest, run_id)}", 480)
        working = [app for app in _get(cluster.address(8090), "/json/")["activeapps"] if app["name"].startswith(JOB)]
        cluster.kill("spark-worker-1")
        until(lambda: rest.run_state(JOB, run_id) in FINISHED_RUN, lambda: f"the end; {_told(home, rest, run_id)}", 600)
        tries = {one.task: one.tries for one in rest.tasks(JOB, run_id)}
        return Night(home, cluster, run_id, rest.run_state(JOB, run_id), tries, working)


def test_the_run_ends_well_although_a_worker_died(night: Night) -> None:
    assert night.state == "success"
    assert [app["name"] for app in night.killed_during] == [f"{JOB}.{KILLED_IN}"]


def test_the_worker_was_lost_in_the_middle_of_the_stage(night: Night) -> None:
    (app,) = night.killed_during
    executors = _history(night.cluster, f"applications/{app['id']}/allexecutors")
    removed = [one for one in executors if "removeReason" in one]
    assert removed, "Spark noticed the death"
    assert app["cores"] == 2, "it was running on both workers"


def test_the_published_counts_are_those_of_a_counter(night: Night) -> None:
    words: collections.Counter[str] = collections.Counter()
    for file in (night.home / "data" / "words").glob("*.parquet"):
        words.update(pq.read_table(file)["word"].to_pylist())
    (published,) = (night.home / "data" / "published" / "words").glob("date=*")
    table = pq.read_table(published, partitioning=None)
    assert dict(zip(table["word"].to_pylist(), table["occurrences"].to_pylist(), strict=True)) == words
    totals = {word: len(word) * rows for word, rows in words.items()}
    assert dict(zip(table["word"].to_pylist(), table["total"].to_pylist(), strict=True)) == totals


def test_the_ledger_balances(night: Night) -> None:
    ledger = balance(night.run.job(), night.run.reports(), night.run.committed(RESULT_STEP).counts["rows"])
    assert (ledger.problems, ledger.input_rows) == ((), sum(COUNTS.values()))


def test_spark_worked_on_the_standalone_cluster_and_not_in_the_driver(night: Night) -> None:
    apps = {app["name"]: app["id"] for app in _history(night.cluster, "applications")}
    assert f"{JOB}.stage_00.run" in apps
    executors = _history(night.cluster, f"applications/{apps[f'{JOB}.stage_00.run']}/allexecutors")
    busy = {one["id"] for one in executors if one["totalTasks"]}
    assert busy == {"0", "1"}


def test_the_whole_cluster_listens_on_the_loopback_only(night: Night) -> None:
    addresses = {one for session in night.cluster.sessions.values() for one in listening(session.processes())}
    assert len(addresses) >= len(set(night.cluster.ports.values())) - 1, "all but the worker that is dead"
    assert not [address for address in addresses if not address.startswith(LOOPBACK)]


def test_postgresql_holds_the_metadata(night: Night) -> None:
    secret = running.variables(night.home)["POSTGRES_PASSWORD"]
    port = night.cluster.ports[5432]
    with psycopg.connect(host="127.0.0.1", port=port, user="airflow", dbname="airflow", password=secret) as connection:
        ran = connection.execute("SELECT dag_id, run_id, state FROM dag_run").fetchall()
        pools = {str(pool): slots for pool, slots in connection.execute("SELECT pool, slots FROM slot_pool")}
        users = connection.execute("SELECT username FROM ab_user ORDER BY id").fetchall()
    assert ran == [(JOB, night.run_id, "success")]
    assert pools["spark"] == 2
    assert users[0] == (running.USER,)


def test_postgresql_takes_nobody_without_the_password(night: Night) -> None:
    with pytest.raises(psycopg.OperationalError, match="password"):
        psycopg.connect(host="127.0.0.1", port=night.cluster.ports[5432], user="airflow", password="airflow")


@pytest.mark.parametrize(
    ("may_read", "code"),
    [pytest.param([f"DAG:{JOB}"], 200, id="the DAG"), pytest.param([], 403, id="everything but the DAG")],
)
@pytest.mark.parametrize("page", ["skew", "quality"])
def test_the_pages_of_a_run_are_for_those_who_may_read_its_dag(
    night: Night, may_read: list[str], code: int, page: str
) -> None:
    name = f"reader_{code}_{page}"
    with _user(night, name, ["Website", "Plugins", "DAG Runs", "Task Instances", *may_read]) as client:
        answer = client.get(f"/skewless/dags/{JOB}/runs/{quote(night.run_id, safe='')}/{page}")
        jobs = client.get("/skewless/")
    assert answer.status_code == code
    assert jobs.status_code == 200
    assert (JOB in jobs.text) == (code == 200)


def test_secrets_are_in_no_output_and_no_command_line(night: Night) -> None:
    secrets = [line.partition("=")[2] for line in (night.home / SECRETS).read_text().splitlines()]
    assert all(len(one) >= 40 for one in secrets)
    said = [file.read_text(errors="replace") for file in (night.home / OUTPUT).iterdir()]
    said += [file.read_text(errors="replace") for file in (night.home / "logs").rglob("*.log")]
    for session in night.cluster.sessions.values():
        for pid in session.processes():
            said.append(Path(f"/proc/{pid}/cmdline").read_text(errors="replace"))
    assert [text[:200] for text in said if any(one in text for one in secrets)] == []
    assert (night.home / SECRETS).stat().st_mode & 0o777 == 0o600


@contextlib.contextmanager
def _user(night: Night, name: str, may_read: list[str]) -> Iterator[httpx.Client]:
    secret = f"{name}-{night.run_id}"
    with httpx.Client(base_url=night.cluster.url, timeout=60, trust_env=False) as client:
        _log_in(client, running.USER, running.password(night.home))
        reads = [{"action": {"name": "can_read"}, "resource": {"name": one}} for one in may_read]
        client.post("/auth/fab/v1/roles", json={"name": name, "actions": reads}).raise_for_status()
        user = {"username": name, "email": f"{name}@localhost", "first_name": "a", "last_name": "reader"}
        client.post(
            "/auth/fab/v1/users", json={**user, "password": secret, "roles": [{"name": name}]}
        ).raise_for_status()
        _log_in(client, name, secret)
        yield client


def _log_in(client: httpx.Client, name: str, password: str) -> None:
    answer = client.post("/auth/token", json={"username": name, "password": password})
    answer.raise_for_status()
    client.headers["Authorization"] = f"Bearer {answer.json()['access_token']}"


def _told(home: Path, rest: AirflowRest, run_id: str) -> str:
    tasks = [f"{one.task} {one.state} in try {one.tries}" for one in rest.tasks(JOB, run_id) if one.state]
    logs = sorted((home / "logs").glob(f"dag_id={JOB}/*/*/*.log"), key=lambda file: file.stat().st_mtime)
    last = logs[-1].read_text(errors="replace").splitlines()[-25:] if logs else []
    return "\n".join([", ".join(tasks), *last])


def _history(cluster: Cluster, path: str) -> list[dict[str, Any]]:
    held = list[dict[str, Any]]()

    def told() -> bool:
        answer = httpx.get(f"{cluster.address(18080)}/api/v1/{path}", timeout=30, trust_env=False)
        held[:] = answer.json() if answer.is_success else []
        return bool(held)

    until(told, f"{path} of the history server", 60)
    return held


def _get(address: str, path: str) -> dict[str, Any]:
    answer = httpx.get(f"{address}{path}", timeout=30, trust_env=False)
    answer.raise_for_status()
    held: dict[str, Any] = answer.json()
    return held
