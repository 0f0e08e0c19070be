"""A whole Airflow for a test: API server, scheduler, DAG processor and triggerer, in a home of its own.

It is what ``make up`` starts, but with a DAG folder of the test's. It takes half a minute to be up. Its database is
SQLite, which takes one writer at a time: a call that finds it locked is made again, and commands that write much are
given before the others write.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import httpx
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_fixed

from deploy.local import standalone
from deploy.local.rest import FINISHED_RUN, AirflowRest
from skewless_airflow.connect import process_session as session
from tests.listening import listening

#: On two slow cores, beside other tests.
_PATIENCE_SECONDS = 900.0


class ServedAirflow(NamedTuple):
    """An Airflow that is up, its API, what its processes print, and they themselves."""

    rest: AirflowRest
    log: Path
    session: session.Session

    def listening(self) -> set[str]:
        """Where its processes listen at this moment, with all that they have started."""
        return listening(self.session.processes())

    def trigger(self, dag_id: str, run_id: str, **body: Any) -> None:
        """Start a run by hand, with an id of the test's."""
        self.ask("POST", f"/dags/{dag_id}/dagRuns", {"logical_date": None, "dag_run_id": run_id, **body})

    def call(self, method: str, dag_id: str, run_id: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """A call about one run."""
        return self.ask(method, f"/dags/{dag_id}/dagRuns/{quote(run_id, safe='')}{path}", body)

    def ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """A call of the API; again where the server could not, and so has done nothing."""
        again = Retrying(retry=retry_if_exception(_failed), stop=stop_after_delay(60), wait=wait_fixed(1), reraise=True)
        return again(self.rest._call, method, path, body)

    def states(self, dag_id: str, run_id: str) -> dict[str, str]:
        """The state of each task of a run."""
        return {one.task: one.state for one in self.rest.tasks(dag_id, run_id)}

    def has_noticed(self, dag_id: str, run_id: str, task: str, attempt: int) -> bool:
        """Whether the scheduler knows that the process of an attempt of a task has ended well."""
        named = f"dag_id='{dag_id}', task_id='{task}', run_id='{run_id}', try_number={attempt},"
        return any("event with state success" in line and named in line for line in self.log.read_text().splitlines())

    def await_end(self, dag_id: str, run_id: str) -> str:
        """Wait until a run has ended; its state."""
        await_that(lambda: self.rest.run_state(dag_id, run_id) in FINISHED_RUN, f"the end of {run_id} of {dag_id}")
        return self.rest.run_state(dag_id, run_id)


@contextmanager
def served_airflow(
    folder: Path, dags: dict[str, str], first: Sequence[Sequence[str]] = (), **settings: str
) -> Iterator[ServedAirflow]:
    """Start an Airflow below a folder, wait until it has parsed its DAGs, and stop it at the end.

    Args:
        folder: for its home and its DAG folder.
        dags: for each DAG the text of its file; they begin to run when they are triggered.
        first: commands after ``airflow`` that are given once the DAGs are known, and before anything else runs.
        settings: of its environment.
    """
    home, port = folder / "airflow", standalone.free_port()
    (home / "dags").mkdir(parents=True)
    for dag_id, text in dags.items():
        (home / "dags" / f"{dag_id}.py").write_text(f"# airflow\n{text}")
    password = _make_password(home / "passwords.json")
    environment = {
        **standalone.environment(port),
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__DAGS_FOLDER": str(home / "dags"),
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(home / "passwords.json"),
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home / 'airflow.db'}",
        "AIRFLOW__LOGGING__BASE_LOG_FOLDER": str(home / "logs"),
        **settings,
    }
    for command in [("db", "migrate"), ("dags", "reserialize"), *first] if first else ():
        _give(command, environment)
    log = home / "standalone.log"
    began = session.begin(standalone.COMMAND, environment, home, log)
    try:
        up = standalone.Running(began.pid, began.born, port)
        await_that(lambda: up.healthy() or not began.leads(), "Airflow to be healthy")
        assert began.leads(), f"Airflow has ended:\n{log.read_text()[-3000:]}"
        with AirflowRest(up.url, standalone.USER, password) as rest:
            served = ServedAirflow(rest, log, began)
            pool = {"name": standalone.POOL, "slots": standalone.POOL_SLOTS, "include_deferred": False}
            served.ask("POST", "/pools", pool)
            for dag_id in dags:
                rest.wait_for_dag(dag_id, _PATIENCE_SECONDS)
                served.ask("PATCH", f"/dags/{dag_id}", {"is_paused": False})
            yield served
    finally:
        session.end([began], standalone.STOP_SECONDS)


def await_that(condition: Callable[[], bool], what: str) -> None:
    """Wait until something holds.

    Raises:
        AssertionError: it does not, for minutes.
    """
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"waited {_PATIENCE_SECONDS:.0f} s for {what}"
        time.sleep(0.5)


def _give(command: Sequence[str], environment: dict[str, str]) -> None:
    """An Airflow command, as somebody types it."""
    done = subprocess.run(
        [sys.executable, "-m", "airflow", *command], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"airflow {' '.join(command)}:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"


def _failed(error: BaseException) -> bool:
    return isinstance(error, httpx.HTTPStatusError) and error.response.is_server_error


def _make_password(path: Path) -> str:
    password = secrets.token_urlsafe(12)
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    with os.fdopen(descriptor, "w") as out:
        out.write(json.dumps({standalone.USER: password}))
    return password
