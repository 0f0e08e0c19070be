"""The few calls of Airflow's REST API that the demo makes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import httpx
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_fixed

FINISHED_RUN = frozenset({"success", "failed"})


@dataclass(frozen=True)
class TaskState:
    """A task of a run as the API tells it; state "" before the scheduler has seen it."""

    task: str
    state: str
    seconds: float | None
    tries: int


class AirflowRest:
    """A logged-in client of one Airflow."""

    def __init__(self, url: str, user: str, password: str) -> None:
        self.url = url
        self._login = {"username": user, "password": password}
        # trust_env off: a proxy of the laptop is not for its own localhost.
        self._client = httpx.Client(base_url=url, timeout=30, trust_env=False)
        try:
            self._log_in()
        except BaseException:
            self._client.close()  # nobody has it yet who could
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def wait_for_dag(self, dag_id: str, seconds: float) -> bool:
        """Wait until the DAG processor has found a DAG; whether it was paused then."""
        for attempt in Retrying(
            stop=stop_after_delay(seconds), wait=wait_fixed(1), retry=retry_if_exception(_not_found), reraise=True
        ):
            with attempt:
                return bool(self._call("GET", f"/dags/{dag_id}")["is_paused"])
        raise AssertionError("Retrying either returns or raises")

    def set_paused(self, dag_id: str, paused: bool) -> None:
        """Pause a DAG or let it run."""
        self._call("PATCH", f"/dags/{dag_id}", {"is_paused": paused})

    def ensure_pool(self, name: str, slots: int) -> None:
        """Make a pool unless there is one of that name; its slots are then somebody's choice."""
        try:
            self._call("GET", f"/pools/{name}")
        except httpx.HTTPStatusError as err:
            if err.response.status_code != httpx.codes.NOT_FOUND:
                raise
            self._call("POST", "/pools", {"name": name, "slots": slots, "include_deferred": False})

    def trigger(self, dag_id: str) -> str:
        """Start a run by hand and return its id."""
        return str(self._call("POST", f"/dags/{dag_id}/dagRuns", {"logical_date": None})["dag_run_id"])

    def run_state(self, dag_id: str, run_id: str) -> str:
        """The state of a run."""
        return str(self._call("GET", f"/dags/{dag_id}/dagRuns/{run_id}")["state"])

    def active_runs(self, dag_id: str) -> list[str]:
        """The runs of a DAG that are queued or running, oldest first."""
        found = self._call("GET", f"/dags/{dag_id}/dagRuns?state=queued&state=running&order_by=run_after&limit=100")
        return [run["dag_run_id"] for run in found["dag_runs"]]

    def fail_run(self, dag_id: str, run_id: str) -> None:
        """Mark a run as failed, which also stops its tasks."""
        self._call("PATCH", f"/dags/{dag_id}/dagRuns/{run_id}", {"state": "failed"})

    def tasks(self, dag_id: str, run_id: str) -> list[TaskState]:
        """All tasks of a run."""
        found = self._call("GET", f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances?limit=100")
        return [
            TaskState(one["task_id"], one["state"] or "", one["duration"], one["try_number"])
            for one in found["task_instances"]
        ]

    def log_lines(self, dag_id: str, run_id: str, task: str, tries: int) -> list[str]:
        """The log of one try of a task, one line for each event."""
        found = self._call(
            "GET", f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task}/logs/{tries}?full_content=true"
        )
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


def _not_found(error: BaseException) -> bool:
    return isinstance(error, httpx.HTTPStatusError) and error.response.status_code == httpx.codes.NOT_FOUND
