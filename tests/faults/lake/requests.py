"""Requests that a process sends to the server of its bucket, through a wire on which something happens to one."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple
from urllib.parse import unquote

from tests.broken_wire import BrokenWire, Fault, broken_wire
from tests.faults.lake.harness import Stage
from tests.faults.lake.syscalls import plain_name

#: Longer than the clients of a trial wait for an answer.
LATE_SECONDS = 1.5


class Request(NamedTuple):
    """A request: its first line, without what is random, and for which time it is sent."""

    line: str
    nth: int = 1

    @property
    def name(self) -> str:
        return f"{self.line}" + (f", {self.nth}" if self.nth > 1 else "")

    @property
    def writes(self) -> bool:
        return not self.line.startswith(("GET", "HEAD"))


class Wire:
    """What happens to requests: to one of them, or from one of them on to all.

    Args:
        struck: the request; None for none.
        fault: what happens to it.
        for_good: whether it happens to all requests after it, too.
        kills: whether the process is killed before the server gets the request.
    """

    def __init__(
        self, struck: Request | None = None, fault: Fault = "none", *, for_good: bool = False, kills: bool = False
    ) -> None:
        self.struck, self.fault, self.for_good, self.kills = struck, fault, for_good, kills
        self.pid = 0
        #: The requests that came, in their order.
        self.came: list[Request] = []
        #: The number of the request that it happened to.
        self.hit: int | None = None
        self._seen: Counter[str] = Counter()

    def faults(self, number: int, first_line: str) -> Fault:
        method, path, _ = unquote(first_line).split(" ", 2)
        line = f"{method} {plain_name(path)}"
        self._seen[line] += 1
        self.came.append(Request(line, self._seen[line]))
        if self.hit is None and self.came[-1] == self.struck:
            self.hit = number
            if not self.kills:
                return self.fault
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            return "lose request"
        return self.fault if self.for_good and self.hit is not None else "none"


@contextmanager
def wired(stage: Stage, wire: Wire) -> Iterator[BrokenWire]:
    assert stage.server is not None
    with broken_wire(stage.server.port, wire.faults, late_seconds=LATE_SECONDS) as proxy:
        yield proxy
