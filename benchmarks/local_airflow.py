"""The Airflow of `make up`, in a home of its own, for benchmarks that run whole DAGs: by its doors and its REST API."""

from __future__ import annotations

import datetime as dt
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import httpx

RUN_SECONDS = 400.0
_FINISHED = {"success", "failed"}
_USER = "admin"


class Rest:
    """The few calls of Airflow's REST API that a benchmark makes.

    Args:
        url: of Airflow.
        password: of its only user.
    """

    def __init__(self, url: str, password: str) -> None:
        self._client = httpx.Client(base_url=f"{url}/api/v2", timeout=30, trust_env=False)
        answer = self._client.post(f"{url}/auth/token", json={"username": _USER, "password": password})
        self._client.headers["Authorization"] = f"Bearer {answer.raise_for_status().json()['access_token']}"

    def await_dag(self, dag: str) -> None:
        """Wait until a DAG is there, and let it run."""
        deadline = time.monotonic() + RUN_SECONDS
        while self._client.get(f"/dags/{dag}").is_error and time.monotonic() < deadline:
            time.sleep(1)
        self._client.patch(f"/dags/{dag}", json={"is_paused": False}).raise_for_status()

    def run(self, dag: str, conf: Mapping[str, str]) -> list[tuple[str, float, float]]:
        """Run a DAG to its end.

        Returns:
            Id, begin and end of each task that ran, in seconds since 1970.

        Raises:
            RuntimeError: the run failed, or takes too long.
        """
        runs = f"/dags/{dag}/dagRuns"
        body = {"logical_date": None, "conf": dict(conf)}
        run = self._client.post(runs, json=body).raise_for_status().json()["dag_run_id"]
        deadline, state = time.monotonic() + RUN_SECONDS, ""
        while state not in _FINISHED:
            if time.monotonic() > deadline:
                raise RuntimeError(f"run {run} of {dag} has not ended after {RUN_SECONDS:.0f} s")
            time.sleep(0.5)
            state = self._client.get(f"{runs}/{run}").raise_for_status().json()["state"]
        answer = self._client.get(f"{runs}/{run}/taskInstances?limit=100").raise_for_status()
        tasks = answer.json()["task_instances"]
        if state != "success":
            raise RuntimeError(f"run {run} of {dag} is {state}: { {one['task_id']: one['state'] for one in tasks} }")
        return [
            (one["task_id"], _seconds(one["start_date"]), _seconds(one["end_date"]))
            for one in tasks
            if one["state"] == "success"
        ]


@contextmanager
def airflow(home: Path, settings: Mapping[str, str]) -> Iterator[Rest]:
    """Have an Airflow up for as long as this lasts.

    Args:
        home: its folder, which may not exist yet.
        settings: of its environment, beside that of this process.

    Raises:
        subprocess.CalledProcessError: it did not start.
    """
    port = _free_port()
    environment = {**os.environ, **settings, "SKEWLESS_AIRFLOW_HOME": str(home), "SKEWLESS_PORT": str(port)}

    def door(name: str) -> None:
        subprocess.run(  # noqa: S603  # our own command
            [sys.executable, "-m", "deploy.local", name], env=environment, check=True, stdout=sys.stderr
        )

    try:
        door("up")
        passwords = json.loads((home / "simple_auth_manager_passwords.json.generated").read_text(encoding="utf-8"))
        yield Rest(f"http://localhost:{port}", passwords[_USER])
    finally:
        door("down")


def _seconds(moment: str) -> float:
    return dt.datetime.fromisoformat(moment).timestamp()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
