"""What the histories of all protocols have in common: a machine, what must hold, and tasks that are tried again."""

import datetime as dt
from collections.abc import Callable
from typing import Any

from skewless.errors import SkewlessError
from skewless_leases import LeaseError
from tests.simulation.machine import Machine


class Scenario:
    """Begins processes on a machine; when they have ended, ``end`` looks what has come of them."""

    #: Whether what its processes do outlasts a loss of power; else none is lost.
    lasts = False

    def __init__(self, machine: Machine) -> None:
        self.machine, self.world, self.draws = machine, machine.world, machine.world.draws
        self._first: dict[str, Any] = {}

    def begin(self) -> None:
        """Begin the processes."""

    def end(self) -> None:
        """Check what must hold in the end."""

    @property
    def now(self) -> dt.datetime:
        return dt.datetime.fromtimestamp(self.world.now, dt.UTC)

    def require(self, held: bool, what: str) -> None:
        if not held:
            self.world.fault(what)

    def same(self, what: str, seen: object) -> None:
        first = self._first.setdefault(what, seen)
        self.require(first == seen, f"{what} was {first}, and is {seen}")

    def tried(self, task: Callable[[], object], times: int = 6) -> bool:
        """Try a task again as long as it ends with a sentence, as Airflow does; whether it was done."""
        for _ in range(times):
            try:
                task()
            except (SkewlessError, LeaseError, OSError):
                self.world.sleep(self.draws.expovariate(1 / 20))
            else:
                return True
        return False
