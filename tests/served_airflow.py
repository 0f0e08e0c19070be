"""A whole Airflow for tests: API server, scheduler, DAG processor and triggerer, in a home of its own.

It is what ``make up`` starts, but with DAGs of the tests. To be up takes it half a minute, so the tests of a session
share one: the fixture ``served``. Scenarios keep apart by the names of their DAGs
and by the folders of inputs and results that these name below the data root.
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

from deploy.local import standalone
from skewless.run.directory import RunDirectory
from skewless_airflow.run_store import safe_run_id
from skewless_airflow.runners.process_session import Session
from tests import airflow_rest
from tests.airflow_rest import AirflowRest
from tests.listening import drivers_of, listening
from tests.spark.clusters import install_paced

#: On two slow cores, beside other tests.
PATIENCE_SECONDS = 900.0
#: The connections of the shared Airflow: a small Spark, the same once more, and one that leads nowhere.
_HERE, _NOWHERE = (json.dumps({"conn_type": "spark", "host": host}) for host in ("local[1]", "spork://nowhere"))
SETTINGS = {
    "SKEWLESS_DRIVER_MEMORY": "700m",
    "AIRFLOW_CONN_SPARK_DEFAULT": _HERE,
    "AIRFLOW_CONN_SPARK_SECOND": _HERE,
    "AIRFLOW_CONN_SPARK_NOWHERE": _NOWHERE,
    # Only steps with the aggregate ``paced_sum`` take their time.
    "PACE_ROW_SECONDS": "0.006",
    # DAGs are added while it runs, and nobody changes one.
    "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "1",
    "AIRFLOW__DAG_PROCESSOR__BUNDLE_REFRESH_CHECK_INTERVAL": "1",
    "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "900",
    "AIRFLOW__SCHEDULER__TRIGGER_TIMEOUT_CHECK_INTERVAL": "1",
}


@dataclass(frozen=True)
class ServedAirflow:
    """An Airflow that is up."""

    rest: AirflowRest
    home: standalone.Home
    root: Path

    @property
    def session(self) -> Session:
        """Its processes."""
        found = standalone.recorded(self.home)
        assert found is not None
        return found

    def listening(self, root: Path) -> set[str]:
        """Where its processes listen at this moment, with all that they have started, and the drivers of its runs."""
        return listening([*self.session.processes(), *(one.pid for one in drivers_of(str(root)))])

    def add_dags(self, dags: Mapping[str, str]) -> None:
        """Add DAGs, and wait until they can be triggered."""
        for dag_id, text in dags.items():
            draft = self.home.folder / "dags" / f".{dag_id}"
            draft.write_text(f"# airflow\n{text}")
            draft.rename(draft.with_name(f"{dag_id}.py"))
        for dag_id in dags:
            self.rest.wait_for_dag(dag_id, PATIENCE_SECONDS)
            self.rest.set_paused(dag_id, paused=False)

    def add_job(self, spec: Mapping[str, object]) -> None:
        """Add the DAG of a job spec."""
        name = str(spec["name"])
        file = self.home.folder / "specs" / f"{name}.yaml"
        file.parent.mkdir(exist_ok=True)
        file.write_text(yaml.safe_dump(dict(spec)))
        self.add_dags({name: dag_of(file)})

    def run(self, dag_id: str, run_id: str) -> RunDirectory:
        """The run directory of a run."""
        return RunDirectory(f"{self.root}/runs/{dag_id}/{safe_run_id(run_id)}")

    def has_noticed(self, dag_id: str, run_id: str, task: str, attempt: int) -> bool:
        """Whether the scheduler knows that the process of an attempt of a task has ended well."""
        named = f"dag_id='{dag_id}', task_id='{task}', run_id='{run_id}', try_number={attempt},"
        lines = self.home.output.read_text().splitlines()
        return any("event with state success" in line and named in line for line in lines)

    def await_end(self, dag_id: str, run_id: str) -> str:
        """Wait until a run has ended; its state."""
        return self.rest.await_end(dag_id, run_id, PATIENCE_SECONDS)


@contextmanager
def shared_airflow(folder: Path) -> Iterator[ServedAirflow]:
    """Have an Airflow up that other processes use, too: the first one starts it, and the last one stops it."""
    home, root = _laid_out(folder)
    settings = {**own_settings(home, root), "PYTHONPATH": _with_packages(install_paced(folder / "packages"))}
    with (folder / "users").open("w") as users:
        with _alone(folder):
            started = standalone.running(home)
            if started is None:
                started = standalone.start(home, standalone.free_port(), settings)
                standalone.wait_until_healthy(home, started, seconds=PATIENCE_SECONDS)
            fcntl.flock(users, fcntl.LOCK_SH)
        try:
            with airflow_rest.client(home, started) as client:
                yield ServedAirflow(client, home, root)
        finally:
            with _alone(folder):
                try:
                    fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    pass  # somebody else uses it still
                else:
                    standalone.stop(home)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    with (folder / "lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


@contextmanager
def served_airflow(
    folder: Path,
    settings: Mapping[str, str],
    first: Sequence[Sequence[str]] = (),
    dags: Mapping[str, str] | None = None,
) -> Iterator[ServedAirflow]:
    """Have an Airflow up below a folder for as long as this lasts.

    Args:
        folder: for its home, its DAG folder and its data root.
        settings: of its environment, instead of the usual ones.
        first: commands after ``airflow`` that are given before it starts, when the DAGs are known: those that write
            much, for SQLite takes one writer at a time.
        dags: for each DAG that is there from the beginning the text of its file.
    """
    home, root = _laid_out(folder)
    given = {**own_settings(home, root), **settings}
    for dag_id, text in (dags or {}).items():
        (home.folder / "dags" / f"{dag_id}.py").write_text(f"# airflow\n{text}")
    for command in [("db", "migrate"), ("dags", "reserialize"), *first] if first else ():
        _give(command, standalone.environment(home, 0, given))
    with airflow_rest.up(home, given, seconds=PATIENCE_SECONDS) as client:
        served = ServedAirflow(client, home, root)
        for dag_id in dags or {}:
            client.wait_for_dag(dag_id, PATIENCE_SECONDS)
            client.set_paused(dag_id, paused=False)
        yield served


def _laid_out(folder: Path) -> tuple[standalone.Home, Path]:
    home, root = standalone.Home(folder / "airflow"), folder / "root"
    (home.folder / "dags").mkdir(parents=True, exist_ok=True)
    root.mkdir(exist_ok=True)
    return home, root


def own_settings(home: standalone.Home, root: Path) -> dict[str, str]:
    """What an Airflow of the tests has instead of the usual settings."""
    return {**SETTINGS, "SKEWLESS_ROOT": str(root), "AIRFLOW__CORE__DAGS_FOLDER": str(home.folder / "dags")}


def dag_of(spec: Path) -> str:
    """The text of a DAG file for a spec."""
    return f"from skewless_airflow.dags.catalog import build_dag\ndag = build_dag({str(spec)!r})\n"


def await_that(condition: Callable[[], bool], what: str) -> None:
    """Wait until something holds, for minutes."""
    airflow_rest.await_that(condition, what, PATIENCE_SECONDS)


def _with_packages(folder: Path) -> str:
    """A ``PYTHONPATH`` on which Spark's Python workers find the packages of a folder, too."""
    return os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))


def _give(command: Sequence[str], environment: dict[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "airflow", *command], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"airflow {' '.join(command)}:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
