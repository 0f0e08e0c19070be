"""A worker's end of its heartbeat: starts the process that beats, talks to it in lines, and ends it."""

from __future__ import annotations

import atexit
import contextlib
import itertools
import json
import os
import select
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from skewless_leases.errors import LeaseError
from skewless_leases.stores import settings_of

_BLOCK = 1 << 16


class Lines:
    """Lines of JSON that come through a pipe, each within a time."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor, self._read = descriptor, b""

    def next(self, within: float) -> Any:
        """The next line; None if it does not come within so many seconds.

        Raises:
            EOFError: the pipe has ended.
        """
        until = time.monotonic() + within
        while b"\n" not in self._read:
            ready, _, _ = select.select([self._descriptor], [], [], max(0.0, until - time.monotonic()))
            if not ready:
                return None
            block = os.read(self._descriptor, _BLOCK)
            if not block:
                raise EOFError
            self._read += block
        line, _, self._read = self._read.partition(b"\n")
        return json.loads(line)


#: A new interpreter on a loaded machine takes its time.
START_SECONDS = 60.0
#: How long a heartbeat may take for its last word.
END_SECONDS = 15.0
#: Tells the heartbeats of a process apart.
_NUMBERS = itertools.count()


class Heartbeat:
    """The heartbeat of this process, under a worker's name: a beat ``every`` so many seconds.

    All workers of a process share one process that beats for them: to start another for each lease would take a tenth
    of a second of a processor.
    """

    def __init__(self, address: str, worker: str, room: int, every: float) -> None:
        self.address, self.worker, self.room, self.every = address, worker, room, every
        self._number = next(_NUMBERS)
        self._beats: _Process | None = None

    def keep(self) -> None:
        """Start it, or start it anew if it has ended; returns when it has begun to beat.

        Raises:
            LeaseError: it does not begin, or the store will never take this worker's record.
        """
        if self._beats and self._beats.lives:
            return
        self._beats = None
        told = {
            "number": self._number,
            "address": self.address,
            # The process may have been started before these were set.
            "environment": settings_of(self.address),
            "worker": self.worker,
            "room": self.room,
            "every": self.every,
        }
        process = _Process.of_this()
        answer = process.ask(told, START_SECONDS)
        if answer is None and not process.lives:  # it ended before it was asked
            process = _Process.of_this()
            answer = process.ask(told, START_SECONDS)
        if answer is None:
            process.ask(self._end, 0.0)
            raise LeaseError.saying(
                f"heartbeat of {self.worker}", f"it did not begin within {START_SECONDS:.0f} seconds",
                "read its messages on standard error",
            )  # fmt: skip
        if refusal := answer[1]:
            raise LeaseError(*refusal)
        self._beats = process

    @property
    def pid(self) -> int | None:
        """The process that beats, if one was started."""
        return self._beats.pid if self._beats else None

    def stop(self) -> None:
        """Let it say that the worker has ended, and wait for that."""
        if self._beats:
            self._beats.ask(self._end, END_SECONDS)
            self._beats = None

    @property
    def _end(self) -> dict[str, Any]:
        return {"number": self._number, "every": None}


class _Process:
    """The process that beats for the workers of this one."""

    _shared: _Process | None = None
    _starting = threading.Lock()

    def __init__(self) -> None:
        self._owner, self._asking = os.getpid(), threading.Lock()
        # The interpreter is asked for the package where this process has it, installed or not.
        place = str(Path(__file__).parents[2])
        path = os.pathsep.join(filter(None, (place, os.environ.get("PYTHONPATH"))))
        self._process = subprocess.Popen(  # noqa: S603  # this interpreter, with a number of our own
            # -P: a json.py in the folder that the worker happens to be started in is not ours.
            [sys.executable, "-P", "-m", "skewless_leases.liveness.heartbeat_process", str(self._owner)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path},
        )
        assert self._process.stdin  # noqa: S101  # it was started with both
        assert self._process.stdout  # noqa: S101
        self._to_it, self._from_it = self._process.stdin, self._process.stdout
        self._lines = Lines(self._from_it.fileno())

    @classmethod
    def of_this(cls) -> _Process:
        """The one of this process; started if there is none, or if it has ended. A forked child has its own."""
        with cls._starting:
            if cls._shared is None or not cls._shared.lives:
                if cls._shared is not None:
                    cls._shared.close()
                cls._shared = cls()
            return cls._shared

    @property
    def lives(self) -> bool:
        """Whether it beats for this process."""
        return self._owner == os.getpid() and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The number of the process."""
        return self._process.pid

    def ask(self, told: dict[str, Any], within: float) -> list[Any] | None:
        """Tell it something about a worker; its answer, or None if it has ended or does not answer in time."""
        until = time.monotonic() + within
        with self._asking, contextlib.suppress(OSError, EOFError):
            self._to_it.write(json.dumps(told).encode() + b"\n")
            self._to_it.flush()
            # An answer to somebody who did not wait for it is passed over.
            while (answer := self._lines.next(max(0.0, until - time.monotonic()))) is not None:
                if answer[0] == told["number"]:
                    return list(answer)
        return None

    def close(self) -> None:
        """Close the pipes, upon which it ends."""
        for pipe in (self._to_it, self._from_it):
            with contextlib.suppress(OSError):
                pipe.close()


@atexit.register
def _end() -> None:
    shared = _Process._shared  # noqa: SLF001
    if shared is not None and shared.lives:
        shared.close()
