"""``python -m tests.load``: 20 runs triggered at once, then 200 in a row, through the Airflow of `make up`.

After each run: the published day is what plain Python counts, the ledger balances, nothing is left over. Every tenth
run, with nothing under way: what the processes hold. Ends with 1 if any of it is not as it should be.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from skewless.run_directory import RunDirectory
from skewless_airflow import connect_server, standalone
from skewless_airflow.rest import FINISHED_RUN, AirflowRest
from skewless_airflow.run_store import safe_run_id
from tests.load.days import days, faults_of, write_catalog, write_lake
from tests.load.footprint import Footprint, footprint, growth
from tests.load.page import Load, page

JOBS = ("visits_a", "visits_b", "visits_c", "visits_d")
LOOK_EVERY = 10
PATIENCE_SECONDS = 3600.0


class House:
    """An Airflow that is up, with its data root and its temporary folders."""

    def __init__(self, folder: Path, rest: AirflowRest) -> None:
        self.root, self.home = folder / "data", folder / "airflow"
        self.temporary = [folder / "tmp", folder / "spark"]
        self.rest = rest
        self.ended = 0
        self.faults: list[str] = []

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

    def judge(self, name: str, day: str, ident: str) -> None:
        """Hold a run that has ended to what was to come out."""
        run = RunDirectory(f"{self.root}/runs/{name}/{safe_run_id(ident)}")
        self.faults += faults_of(self.root, run, name, day)

    def look(self) -> Footprint:
        """What is held now."""
        leaders = [json.loads((self.home / "running.json").read_text())["pid"]]
        server = connect_server.described(self.home / connect_server.FOLDER)
        if server is not None and server.pid:
            leaders.append(server.pid)
        return footprint(leaders, self.temporary, self.ended)


@contextmanager
def house(folder: Path, which: Sequence[str]) -> Iterator[House]:
    """Write the lake and the jobs, start Airflow, and stop it at the end."""
    write_lake(folder / "data", which)
    write_catalog(folder / "catalog", JOBS)
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
    }
    _door("up", setting)
    try:
        held = json.loads((folder / "airflow" / "simple_auth_manager_passwords.json.generated").read_text())
        with AirflowRest(f"http://localhost:{port}", standalone.USER, held[standalone.USER]) as rest:
            for name in JOBS:
                rest.wait_for_dag(name, 120)
                rest.set_paused(name, False)
            yield House(folder, rest)
    finally:
        _door("down", setting)


def at_once(place: House, which: Sequence[str]) -> float:
    """Trigger a run for each of some days, spread over the jobs, before the first has ended; the seconds they took."""
    began = time.monotonic()
    runs = [(JOBS[number % len(JOBS)], day) for number, day in enumerate(which)]
    idents = [place.trigger(name, day, number) for number, (name, day) in enumerate(runs)]
    for (name, _), ident in zip(runs, idents, strict=True):
        place.await_end(name, ident)
    took = time.monotonic() - began
    for (name, day), ident in zip(runs, idents, strict=True):
        place.judge(name, day, ident)
    return took


def in_a_row(place: House, which: Sequence[str], runs: int, until: float) -> tuple[list[Footprint], list[float]]:
    """Run one after the other, days anew when all have been; what was held in between, and each run's seconds.

    Args:
        place: the Airflow.
        which: the days.
        runs: how many.
        until: a moment of the monotonic clock, after which no further run is begun.
    """
    looks, took = [place.look()], []
    for number in range(runs):
        if time.monotonic() > until:
            break
        name, day = JOBS[number % len(JOBS)], which[number % len(which)]
        began = time.monotonic()
        ident = place.trigger(name, day, 1000 + number)
        place.await_end(name, ident)
        took.append(time.monotonic() - began)
        place.judge(name, day, ident)
        if (number + 1) % LOOK_EVERY == 0:
            looks.append(place.look())
            _tell(f"{number + 1} runs in a row; {looks[-1]}; faults: {place.faults}")
    return looks, took


def main() -> int:
    """Do it, print the page, and write it where it was asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.load", description=__doc__)
    parser.add_argument("--at-once", type=int, default=20, help="runs that are triggered at once (20)")
    parser.add_argument("--runs", type=int, default=200, help="runs in a row (200)")
    parser.add_argument("--minutes", type=float, default=1e9, help="after so many no further run is begun")
    parser.add_argument("--table", type=Path, help="where to write the page")
    options = parser.parse_args()
    which, until = days(options.at_once), time.monotonic() + 60 * options.minutes
    with tempfile.TemporaryDirectory(prefix="skewless-load-") as folder, house(Path(folder), which) as place:
        seconds = at_once(place, which)
        _tell(f"{len(which)} runs at once: {seconds:.0f} s; faults: {place.faults}")
        looks, took = in_a_row(place, which, options.runs, until)
        load = Load(len(which), seconds, took, looks, tuple(place.faults), tuple(growth(looks)))
    text = page(load)
    sys.stdout.write(text)
    if options.table:
        options.table.write_text(text, encoding="utf-8")
    return 0 if load.holds else 1


def _tell(words: str) -> None:
    sys.stderr.write(f"{words}\n")


def _door(name: str, setting: dict[str, str]) -> None:
    subprocess.run([sys.executable, "-m", "skewless_airflow.local", name], env=setting, check=True, stdout=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
