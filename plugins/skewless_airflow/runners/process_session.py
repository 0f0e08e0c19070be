"""A process that leads a session, and everything that it started: found again, signalled, stopped.

A process stays in its session through all forks. So whatever a server started is found by the session, even after the
server itself was killed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil


@dataclass(frozen=True)
class Session:
    """The processes of one session.

    Attributes:
        pid: of the first process, which leads the session.
        born: its start time in clock ticks since boot, so that a reused pid is not taken for it.
    """

    pid: int
    born: int

    def leads(self) -> bool:
        """Whether the first process lives."""
        return born(self.pid) == self.born

    def processes(self) -> list[int]:
        """The living processes; components make groups of their own, but stay in their session."""
        if born(self.pid) not in (None, self.born):
            return []
        return [pid for pid in psutil.pids() if _stat(pid)[3:4] == [str(self.pid)]]


def begin(argv: Sequence[str], environment: Mapping[str, str], folder: Path, output: Path) -> Session:
    """Start a program in a session of its own; it outlives this process and inherits none of its open files.

    It starts in a folder, and overwrites a file with its output.
    """
    # Not subprocess.Popen, which warns about a child that outlives it.
    pid = os.posix_spawnp(
        "env",
        ["env", "-C", str(folder), *argv],
        dict(environment),
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(output), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
            *((os.POSIX_SPAWN_CLOSE, descriptor) for descriptor in _inheritable()),
        ],
        setsid=True,
        setsigdef=[signal.SIGPIPE],  # Python ignores it, and a child would inherit that
    )
    return Session(pid, born(pid) or 0)


def _inheritable() -> list[int]:
    """The open files beyond the first three that a child would inherit, such as a lock of the calling shell."""
    found = []
    for descriptor in (int(entry.name) for entry in Path("/proc/self/fd").iterdir()):
        with contextlib.suppress(OSError):  # closed since: it was the listing's own
            if descriptor > 2 and os.get_inheritable(descriptor):
                found.append(descriptor)
    return found


def ask(sessions: Mapping[Session, signal.Signals], seconds: float) -> None:
    """Ask the leaders of sessions to stop, each by its signal, and wait some seconds until all processes have ended."""
    for session, sign in sessions.items():
        if session.leads():
            send([session.pid], sign)
    await_end(sessions, seconds)


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
        _reap()
        time.sleep(0.2)
    _reap()


def born(pid: int) -> int | None:
    """When a living process was started, in clock ticks since boot."""
    fields = _stat(pid)
    return int(fields[19]) if fields else None


def send(pids: Iterable[int], sign: signal.Signals) -> None:
    """Send a signal to those of some processes that live."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, sign)


def _stat(pid: int) -> list[str]:
    """The fields of ``/proc/PID/stat`` after the name, which may contain any character; none if the process ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
    return [] if fields[0] == "Z" else fields


def _reap() -> None:
    """Collect ended children, if this process started what it stops."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
