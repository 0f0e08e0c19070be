"""An Airflow that is up, as `make up` starts it, with a lake and a catalog of small jobs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from deploy.local import standalone
from deploy.local.rest import FINISHED_RUN, AirflowRest
from skewless.run.directory import RunDirectory
from skewless_airflow.connect import server as connect_server
from skewless_airflow.connect.process_session import Session
from skewless_airflow.run_store import safe_run_id
from tests.load.days import faults_of, write_catalog, write_lake
from tests.load.footprint import Footprint, footprint

PATIENCE_SECONDS = 3600.0


class House:
    """An Airflow that is up, with its data root and its temporary folders.

    Args:
        folder: of all of it.
        rest: its API.
        setting: the environment of its doors.
    """

    def __init__(self, folder: Path, rest: AirflowRest, setting: Mapping[str, str]) -> None:
        self.root, self.home = folder / "data", folder / "airflow"
        self.temporary = [folder / "tmp", folder / "spark"]
        self.rest = rest
        self.ended = 0
        self.faults: list[str] = []
        self._setting = setting

    def up(self) -> None:
        """Start it once more; what is left of it is stopped before."""
        _door("up", self._setting)

    def running(self) -> standalone.Running:
        """As it was last started."""
        return standalone.Running(**json.loads((self.home / "running.json").read_text()))

    def session(self) -> Session:
        """Its own processes."""
        return self.running().session

    def spark_session(self) -> Session | None:
        """The processes of its Spark Connect server, if one was started."""
        server = connect_server.described(self.home / connect_server.FOLDER)
        return server.session if server is not None and server.pid else None

    def trigger(self, name: str, day: str, number: int) -> str:
        """Start a run; its id."""
        ident = f"load_{number:04d}_{day}"
        body = {"logical_date": None, "dag_run_id": ident, "conf": {"date": day}}
        self.rest._call("POST", f"/dags/{name}/dagRuns", body)
        return ident

    def await_end(self, name: str, ident: str) -> None:
        """Wait until a run has ended well, or note that it did not."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (state := self.rest.run_state(name, ident)) not in FINISHED_RUN:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{ident} of {name} has not ended after {PATIENCE_SECONDS:.0f} s")
            time.sleep(0.5)
        self.ended += 1
        if state != "success":
            self.faults.append(f"{ident} of {name} ended as {state}")

    def run_of(self, name: str, ident: str) -> RunDirectory:
        """The run directory of a run."""
        return RunDirectory(f"{self.root}/runs/{name}/{safe_run_id(ident)}")

    def judge(self, name: str, day: str, ident: str) -> None:
        """Hold a run that has ended to what was to come out."""
        self.faults += faults_of(self.root, self.run_of(name, ident), name, day)

    def look(self) -> Footprint:
        """What is held now."""
        sessions = [self.session(), self.spark_session()]
        return footprint([one.pid for one in sessions if one], self.temporary, self.ended)


@contextmanager
def house(
    folder: Path, which: Sequence[str], jobs: Sequence[str], settings: Mapping[str, str] | None = None, **spec: Any
) -> Iterator[House]:
    """Write the lake and the jobs, start Airflow, and stop it at the end.

    Args:
        folder: for all of it.
        which: days that have an input.
        jobs: their names.
        settings: of Airflow's environment, beside the usual ones.
        spec: of all jobs, instead of what they have by default.
    """
    write_lake(folder / "data", which)
    write_catalog(folder / "catalog", jobs, **spec)
    for place in ("tmp", "spark"):
        (folder / place).mkdir()
    port = standalone.free_port()
    setting = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW")} | {
        "SKEWLESS_AIRFLOW_HOME": str(folder / "airflow"),
        "SKEWLESS_ROOT": str(folder / "data"),
        "SKEWLESS_CATALOG": str(folder / "catalog"),
        "SKEWLESS_PORT": str(port),
        "SKEWLESS_STEPS": "connect",
        "SKEWLESS_CONNECT_MEMORY": "1g",
        "TMPDIR": str(folder / "tmp"),
        "SPARK_LOCAL_DIRS": str(folder / "spark"),
        **(settings or {}),
    }
    _door("up", setting)
    try:
        held = json.loads((folder / "airflow" / "simple_auth_manager_passwords.json.generated").read_text())
        with AirflowRest(f"http://localhost:{port}", standalone.USER, held[standalone.USER]) as rest:
            for name in jobs:
                rest.wait_for_dag(name, 120)
                rest.set_paused(name, False)
            yield House(folder, rest, setting)
    finally:
        _door("down", setting)


def _door(name: str, setting: Mapping[str, str]) -> None:
    argv = [sys.executable, "-m", "deploy.local", name]
    subprocess.run(argv, env=dict(setting), check=True, stdout=sys.stderr)
