"""A process that leads a session, and everything that it started: found again, signalled, stopped.

A process stays in its session through all forks. So whatever a server started is found by the session, even after the
server itself was killed.
"""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

#: A start time is told anew from the clock each time; one that differs by more is another process's.
_CLOCK_SECONDS = 2.0
_LIBC, _PR_SET_PDEATHSIG = ctypes.CDLL(None), 1
#: What this process has started. It is kept, because Python warns of a child that outlives what stands for it.
_STARTED: list[subprocess.Popen[bytes]] = []


@dataclass(frozen=True)
class Session:
    """The processes of one session."""

    pid: int
    """Of the first process, which leads the session."""
    born: float
    """Its start time in seconds since 1970, so that a reused pid is not taken for it."""

    def leads(self) -> bool:
        """Whether the first process lives."""
        start = born(self.pid)
        return start is not None and abs(start - self.born) < _CLOCK_SECONDS

    def processes(self) -> list[int]:
        """The living processes; components make groups of their own, but stay in their session."""
        if born(self.pid) is not None and not self.leads():
            return []
        found = []
        for pid in psutil.pids():
            with contextlib.suppress(ProcessLookupError):
                if os.getsid(pid) == self.pid and born(pid) is not None:
                    found.append(pid)
        return found


def begin(argv: Sequence[str], environment: Mapping[str, str], folder: Path, output: Path) -> Session:
    """Start a program in a session of its own; it outlives this process and inherits none of its open files.

    It starts in a folder, and overwrites a file with its output.
    """
    log = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
    try:
        process = subprocess.Popen(  # noqa: S603  # the command is the caller's
            argv, env=environment, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
    finally:
        os.close(log)
    _STARTED.append(process)
    return Session(process.pid, born(process.pid) or 0.0)


def end_with_parent() -> None:
    """Let this process, a child before its program, be asked to end when its parent has ended: on Linux."""
    if sys.platform == "linux":
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def end(sessions: Collection[Session], seconds: float) -> None:
    """Stop all processes of sessions, all at once: by SIGTERM, and after some seconds by SIGKILL."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        for session in sessions:
            send(session.processes(), sign)
        await_end(sessions, seconds)


def await_end(sessions: Iterable[Session], seconds: float) -> None:
    """Wait until all processes of sessions have ended, for some seconds at most."""
    deadline = time.monotonic() + seconds
    while any(session.processes() for session in sessions) and time.monotonic() < deadline:
        time.sleep(0.2)
    for process in _STARTED:
        process.poll()  # it takes the exit code, so that no dead child is left


def born(pid: int) -> float | None:
    """When a living process was started, in seconds since 1970; None if it has ended."""
    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else process.create_time()
    except psutil.NoSuchProcess:
        return None


def send(pids: Iterable[int], sign: signal.Signals) -> None:
    """Send a signal to those of some processes that live."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, sign)
