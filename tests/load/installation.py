"""An Airflow that is up, as `make up` starts it, with a lake and a catalog of small jobs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from deploy.local import standalone
from deploy.local.rest import AirflowRest
from skewless.run.directory import RunDirectory
from skewless_airflow.run_store import safe_run_id
from skewless_airflow.runners.process_session import Session
from tests.listening import drivers_of
from tests.load.days import faults_of, write_catalog, write_lake
from tests.load.footprint import Footprint, family, footprint

PATIENCE_SECONDS = 3600.0
#: How long calls are repeated while a component that was killed is away.
RESTART_SECONDS = 420.0


class Installation:
    """An Airflow that is up, with its data root and its temporary folders."""

    def __init__(self, folder: Path, home: standalone.Home, rest: AirflowRest, settings: Mapping[str, str]) -> None:
        self.root, self.home = folder / "data", home
        self.temporary = [folder / "tmp", folder / "spark"]
        self.rest = rest
        self.ended = 0
        self.faults: list[str] = []
        self._settings = settings

    def up(self) -> None:
        """Start it once more on its port; what is left of it is stopped before."""
        started = standalone.start(self.home, self.running().port, self._settings)
        standalone.wait_until_healthy(self.home, started)

    def running(self) -> standalone.Running:
        found = standalone.recorded(self.home)
        assert found is not None
        return found

    def session(self) -> Session:
        return self.running()

    def trigger(self, name: str, day: str, number: int) -> str:
        return self.rest.trigger(name, f"load_{number:04d}_{day}", conf={"date": day})

    def await_end(self, name: str, ident: str) -> None:
        """Wait until a run has ended well, or note that it did not."""
        state = self.rest.await_end(name, ident, PATIENCE_SECONDS)
        self.ended += 1
        if state != "success":
            self.faults.append(f"{ident} of {name} ended as {state}")

    def run_of(self, name: str, ident: str) -> RunDirectory:
        return RunDirectory(f"{self.root}/runs/{name}/{safe_run_id(ident)}")

    def judge(self, name: str, day: str, ident: str) -> None:
        """Hold a run that has ended to what was to come out."""
        self.faults += faults_of(self.root, self.run_of(name, ident), name, day)

    def look(self) -> Footprint:
        all_of = [*family(self.session().pid), *drivers_of(str(self.root))]
        return footprint(all_of, self.temporary, self.ended)


@contextmanager
def installation(
    folder: Path, which: Sequence[str], jobs: Sequence[str], settings: Mapping[str, str] | None = None, **spec: Any
) -> Iterator[Installation]:
    """Write the lake and the jobs, start Airflow, and stop it at the end."""
    write_lake(folder / "data", which)
    write_catalog(folder / "catalog", jobs, **spec)
    for place in ("tmp", "spark"):
        (folder / place).mkdir()
    given = {
        "SKEWLESS_ROOT": str(folder / "data"),
        "SKEWLESS_CATALOG": str(folder / "catalog"),
        "SKEWLESS_DRIVER_MEMORY": "1g",
        "TMPDIR": str(folder / "tmp"),
        "SPARK_LOCAL_DIRS": str(folder / "spark"),
        **(settings or {}),
    }
    home = standalone.Home(folder / "airflow")
    with standalone.up(home, given, patience_seconds=RESTART_SECONDS) as rest:
        for name in jobs:
            rest.wait_for_dag(name, 120)
            rest.set_paused(name, paused=False)
        yield Installation(folder, home, rest, given)
