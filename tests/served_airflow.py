"""A whole Airflow for tests: API server, scheduler, DAG processor and triggerer, in a home of its own.

It is what ``make up`` starts, but with DAGs of the tests.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from deploy import local as standalone
from skewless.run.directory import RunDirectory
from skewless_airflow.run_store import safe_run_id
from skewless_airflow.runners.process_session import Session
from tests import airflow_rest
from tests.airflow_rest import AirflowRest

#: On two slow cores, beside other tests.
PATIENCE_SECONDS = 900.0
SETTINGS = {
    "SKEWLESS_DRIVER_MEMORY": "700m",
    "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "1",
    "AIRFLOW__DAG_PROCESSOR__BUNDLE_REFRESH_CHECK_INTERVAL": "1",
    "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "900",
    "AIRFLOW__SCHEDULER__TRIGGER_TIMEOUT_CHECK_INTERVAL": "1",
}


@dataclass(frozen=True)
class ServedAirflow:
    """An Airflow that is up."""

    rest: AirflowRest
    home: Path
    root: Path

    @property
    def session(self) -> Session:
        found = standalone.recorded(self.home)
        assert found is not None
        return found

    def run(self, dag_id: str, run_id: str) -> RunDirectory:
        return RunDirectory(f"{self.root}/runs/{dag_id}/{safe_run_id(run_id)}")

    def await_end(self, dag_id: str, run_id: str) -> str:
        return self.rest.await_end(dag_id, run_id, PATIENCE_SECONDS)


@contextmanager
def served_airflow(
    folder: Path, settings: Mapping[str, str], dags: Mapping[str, str] | None = None
) -> Iterator[ServedAirflow]:
    """Have an Airflow up below a folder for as long as this lasts.

    Args:
        folder: for its home, its DAG folder and its data root.
        settings: of its environment, instead of the usual ones.
        dags: for each DAG that is there from the beginning the text of its file.
    """
    home, root = folder / "airflow", folder / "root"
    (home / "dags").mkdir(parents=True, exist_ok=True)
    root.mkdir(exist_ok=True)
    given = {**SETTINGS, "SKEWLESS_ROOT": str(root), "AIRFLOW__CORE__DAGS_FOLDER": str(home / "dags"), **settings}
    for dag_id, text in (dags or {}).items():
        (home / "dags" / f"{dag_id}.py").write_text(f"# airflow\n{text}")
    with airflow_rest.up(home, given, seconds=PATIENCE_SECONDS) as client:
        served = ServedAirflow(client, home, root)
        for dag_id in dags or {}:
            client.wait_for_dag(dag_id, PATIENCE_SECONDS)
            client.set_paused(dag_id, paused=False)
        yield served


def dag_of(spec: Path) -> str:
    return f"from skewless_airflow.dags import build_dag\ndag = build_dag({str(spec)!r})\n"
