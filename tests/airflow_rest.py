"""An Airflow that is up for some tests or benchmarks, and a client of its REST API."""

import contextlib
import datetime as dt
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

import httpx
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_fixed

from deploy import local as standalone
from tests.processes import until

#: SQLite takes one writer at a time: a call that found the database locked is repeated for this long.
LOCKED_SECONDS = 60.0
FINISHED_RUN = frozenset({"success", "failed"})


@dataclass(frozen=True)
class TaskState:
    """The last try of a task of a run, as the API reports it.

    Attributes:
        state: "" before the scheduler has seen it.
        seconds: how long the try took; None before it has ended.
        tries: the number of the try, from 1; 0 before the first one.
        span: begin and end in seconds since 1970; None before it has ended.
    """

    task: str
    state: str
    seconds: float | None
    tries: int
    span: tuple[float, float] | None


class AirflowRest:
    """A logged-in client of one Airflow.

    A call is repeated for ``patience_seconds`` while the server is away or answers with an error of its own (5xx), as
    it does when SQLite is locked; 0 is for never.
    """

    def __init__(self, url: str, user: str, password: str, patience_seconds: float = 0.0) -> None:
        self.url = url
        self._login = {"username": user, "password": password}
        self._patience_seconds = patience_seconds
        # trust_env off: a proxy of the laptop is not for its own localhost.
        self._client = httpx.Client(base_url=url, timeout=30, trust_env=False)
        try:
            self._log_in()
        except BaseException:
            self._client.close()  # the caller has no object yet that it could close
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._client.close()

    def call(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """One call of the API, of a path below ``/api/v2``.

        Raises:
            httpx.HTTPError: it was refused, or the server is still away when patience ends.
        """

        def failed(error: BaseException) -> bool:
            if isinstance(error, httpx.HTTPStatusError):
                return error.response.is_server_error
            # A POST that was sent may have been carried out, and must not be carried out twice.
            return isinstance(error, httpx.TransportError if method != "POST" else httpx.ConnectError)

        again = Retrying(
            retry=retry_if_exception(failed),
            stop=stop_after_delay(self._patience_seconds),
            wait=wait_fixed(0.5),
            reraise=True,
        )
        return again(self._call, method, path, body)

    def wait_for_dag(self, dag_id: str, seconds: float) -> bool:
        for attempt in Retrying(
            stop=stop_after_delay(seconds), wait=wait_fixed(0.5), retry=retry_if_exception(_not_found), reraise=True
        ):
            with attempt:
                return bool(self.call("GET", f"/dags/{dag_id}")["is_paused"])
        raise AssertionError("Retrying either returns or raises")

    def set_paused(self, dag_id: str, paused: bool) -> None:
        self.call("PATCH", f"/dags/{dag_id}", {"is_paused": paused})

    def trigger(self, dag_id: str, run_id: str | None = None, **body: Any) -> str:
        """Start a run by hand and return its id; ``body`` are further fields of the call, as ``conf``."""
        asked = {"logical_date": None, **({"dag_run_id": run_id} if run_id else {}), **body}
        return str(self.call("POST", f"/dags/{dag_id}/dagRuns", asked)["dag_run_id"])

    def of_run(
        self, method: str, dag_id: str, run_id: str, path: str = "", body: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        return self.call(method, f"/dags/{dag_id}/dagRuns/{quote(run_id, safe='')}{path}", body)

    def run_state(self, dag_id: str, run_id: str) -> str:
        return str(self.of_run("GET", dag_id, run_id)["state"])

    def await_end(self, dag_id: str, run_id: str, seconds: float) -> str:
        """Wait until a run has ended, and return its state."""
        until(lambda: self.run_state(dag_id, run_id) in FINISHED_RUN, f"run {run_id} of {dag_id} to end", seconds)
        return self.run_state(dag_id, run_id)

    def active_runs(self, dag_id: str) -> list[str]:
        found = self.call("GET", f"/dags/{dag_id}/dagRuns?state=queued&state=running&order_by=run_after&limit=100")
        return [run["dag_run_id"] for run in found["dag_runs"]]

    def tasks(self, dag_id: str, run_id: str) -> list[TaskState]:
        found = self.of_run("GET", dag_id, run_id, "/taskInstances?limit=100")
        return [
            TaskState(one["task_id"], one["state"] or "", one["duration"], one["try_number"], _span(one))
            for one in found["task_instances"]
        ]

    def states(self, dag_id: str, run_id: str) -> dict[str, str]:
        return {one.task: one.state for one in self.tasks(dag_id, run_id)}

    def log_lines(self, dag_id: str, run_id: str, task: str, tries: int) -> list[str]:
        found = self.of_run("GET", dag_id, run_id, f"/taskInstances/{task}/logs/{tries}?full_content=true")
        lines = []
        for event in found["content"]:
            if isinstance(event, str):
                lines.append(event)
                continue
            lines += str(event.get("event", "")).splitlines()
            lines += [f"{error['exc_type']}: {error['exc_value']}" for error in event.get("error_detail") or ()]
        return lines

    def _log_in(self) -> None:
        answer = self._client.post("/auth/token", json=self._login)
        answer.raise_for_status()
        self._client.headers["Authorization"] = f"Bearer {answer.json()['access_token']}"

    def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """One call; after a night with `make up` the token has expired, so log in again once."""
        answer = self._client.request(method, f"/api/v2{path}", json=body)
        if answer.status_code == httpx.codes.UNAUTHORIZED:
            self._log_in()
            answer = self._client.request(method, f"/api/v2{path}", json=body)
        answer.raise_for_status()
        return dict(answer.json()) if answer.content else {}


def client(home: Path, started: standalone.Running, patience_seconds: float = LOCKED_SECONDS) -> AirflowRest:
    """A client of a healthy Airflow, which has its pool of Spark steps from then on."""
    standalone.make_pool(home, started)
    return AirflowRest(started.url, standalone.USER, standalone.password(home), patience_seconds)


@contextlib.contextmanager
def up(
    home: Path,
    settings: Mapping[str, str] | None = None,
    seconds: float = standalone.START_SECONDS,
    patience_seconds: float = LOCKED_SECONDS,
) -> Iterator[AirflowRest]:
    """Have an Airflow with some settings up on a free port for as long as this lasts.

    It may take so many seconds to be healthy.
    """
    try:
        started = standalone.start(home, standalone.free_port(), settings)
        standalone.wait_until_healthy(home, started, seconds=seconds)
        with client(home, started, patience_seconds) as rest:
            yield rest
    finally:
        standalone.stop(home)


def _span(task: dict[str, Any]) -> tuple[float, float] | None:
    if not task["start_date"] or not task["end_date"]:
        return None
    begin, end = (dt.datetime.fromisoformat(task[name]).timestamp() for name in ("start_date", "end_date"))
    return begin, end


def _not_found(error: BaseException) -> bool:
    return isinstance(error, httpx.HTTPStatusError) and error.response.status_code == httpx.codes.NOT_FOUND
