"""The processes of an Airflow that is up: found, killed, and started again as an operator would."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from contextlib import suppress

import psutil

from skewless_airflow.runners.process_session import Session, begin, end
from tests.listening import drivers_of
from tests.load.installation import Installation

#: The components, by their commands.
SCHEDULER, API_SERVER, DAG_PROCESSOR, TRIGGERER = "scheduler", "api-server", "dag-processor", "triggerer"
STOP_SECONDS = 10.0


class Parts:
    """The processes of an installation: those of `make up`, and the components that were started again since."""

    def __init__(self, installation: Installation) -> None:
        self._installation = installation
        self._again: dict[str, Session] = {}

    def component(self, name: str) -> psutil.Process:
        if name in self._again:
            return psutil.Process(self._again[name].pid)
        # It names itself, some of them with an underscore; its workers are further below.
        for one in psutil.Process(self._installation.session().pid).children():
            if lives(one) and name in " ".join(one.cmdline()).replace("_", "-"):
                return one
        raise AssertionError(f"no {name} is running")

    def task(self, ident: str) -> psutil.Process:
        """The process that runs a try of a task, by the id of that."""
        return self._titled(f"airflow worker -- {ident}")

    def supervisor(self, ident: str) -> psutil.Process:
        """The process of the executor that started it and beats for it."""
        return self._titled(f"airflow worker -- LocalExecutor: {ident}")

    def start(self, name: str) -> None:
        installation = self._installation
        environment = psutil.Process(installation.session().pid).environ()
        log = installation.home.folder / f"{name}-{time.monotonic_ns()}.log"
        self._again[name] = begin([sys.executable, "-m", "airflow", name], environment, installation.home.folder, log)

    def kill_all(self, *, spark: bool) -> None:
        """SIGKILL of every process of Airflow, at once; with the drivers of its runs, if they are meant too."""
        sessions = [self._installation.session(), *self._again.values()]
        if spark:
            kill(drivers_of(str(self._installation.root)))
        while pids := [pid for session in sessions for pid in session.processes()]:
            kill(psutil.Process(pid) for pid in pids if psutil.pid_exists(pid))
        self._again.clear()

    def started_by(self, words: str) -> list[psutil.Process]:
        """The living processes, of whatever session, with some words in their command lines."""
        found = []
        for one in psutil.process_iter():
            with suppress(psutil.NoSuchProcess):
                if lives(one) and words in " ".join(one.cmdline()):
                    found.append(one)
        return found

    def sweep(self) -> None:
        """End what a killed component has left: workers of a scheduler that is no more wait for it for ever."""
        sessions = [self._installation.session(), *self._again.values()]
        ours = {pid for session in sessions for pid in session.processes()}
        leaders = {session.pid for session in sessions}
        for pid in ours - leaders:
            with suppress(psutil.NoSuchProcess):
                if psutil.Process(pid).ppid() not in ours:
                    kill(family(psutil.Process(pid)))

    def close(self) -> None:
        end(list(self._again.values()), STOP_SECONDS)

    def _titled(self, title: str) -> psutil.Process:
        found = [one for one in self.started_by(title) if " ".join(one.cmdline()).strip() == title]
        others = {" ".join(one.cmdline()) for one in self.started_by("airflow worker")} if not found else set()
        assert found, f"no process is called {title!r}, but {sorted(others)} are there"
        return found[0]


def lives(process: psutil.Process) -> bool:
    """Whether it has not ended; one that was killed is there until its parent has looked at it."""
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE


def family(process: psutil.Process) -> list[psutil.Process]:
    return [*reversed(process.children(recursive=True)), process]


def kill(processes: Iterable[psutil.Process]) -> None:
    for one in processes:
        with suppress(psutil.NoSuchProcess):
            one.kill()
