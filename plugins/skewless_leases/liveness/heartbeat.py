"""A worker's end of its heartbeat: starts the process that beats, looks after it, ends it."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
from pathlib import Path
from typing import IO, cast

from skewless_leases.errors import LeaseError

#: A new interpreter on a loaded machine takes its time.
START_SECONDS = 60.0
#: How long a heartbeat may take for its last word.
END_SECONDS = 15.0


class Heartbeat:
    """The heartbeat of this process, under a worker's name.

    Args:
        address: of the store, as ``open_store`` takes it.
        worker: the worker's name.
        room: how many partitions it can hold.
        every: seconds between two beats.
    """

    def __init__(self, address: str, worker: str, room: int, every: float) -> None:
        self.address, self.worker, self.room, self.every = address, worker, room, every
        self._process: subprocess.Popen[bytes] | None = None

    def keep(self) -> None:
        """Start it, or start it anew if it has ended; returns when it has begun to beat.

        Raises:
            LeaseError: it does not begin, or the store will never take this worker's record.
        """
        if self._process and self._process.poll() is None:
            return
        self._close_pipes()
        self._process = None
        # The interpreter is asked for the package where this process has it, installed or not.
        place = str(Path(__file__).parents[2])
        path = os.pathsep.join(filter(None, (place, os.environ.get("PYTHONPATH"))))
        self._process = subprocess.Popen(
            # -P: a json.py in the folder that the worker happens to be started in is not ours.
            [sys.executable, "-P", "-m", "skewless_leases.liveness.heartbeat_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path},
        )
        told = {
            "address": self.address,
            "worker": self.worker,
            "room": self.room,
            "every": self.every,
            "pid": os.getpid(),
        }
        to_it, from_it = _pipes(self._process)
        to_it.write(json.dumps(told).encode() + b"\n")
        to_it.flush()
        ready, _, _ = select.select([from_it], [], [], START_SECONDS)
        answer = from_it.readline() if ready else b""
        if not answer:
            self.stop()
            raise LeaseError.saying(
                f"heartbeat of {self.worker}", f"it did not begin within {START_SECONDS:.0f} seconds",
                "read its messages on standard error",
            )  # fmt: skip
        if refusal := json.loads(answer):
            self.stop()
            raise LeaseError(*refusal)

    @property
    def pid(self) -> int | None:
        """The process that beats, if one was started."""
        return self._process.pid if self._process else None

    def stop(self) -> None:
        """Let it say that the worker has ended, and wait for it."""
        process = self._process
        if process is None:
            return
        # Said, and not left to the end of its input: a child that the worker has forked may hold that open.
        with contextlib.suppress(OSError):  # it has ended before
            os.write(_pipes(process)[0].fileno(), b"end\n")
        self._close_pipes()
        try:
            process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self._process = None

    def _close_pipes(self) -> None:
        for pipe in _pipes(self._process) if self._process else ():
            pipe.close()


def _pipes(process: subprocess.Popen[bytes]) -> tuple[IO[bytes], IO[bytes]]:
    """Into it and out of it: it was started with both."""
    return cast("IO[bytes]", process.stdin), cast("IO[bytes]", process.stdout)
