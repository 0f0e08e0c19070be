"""An attempt of a step: a process of its own, with nothing in common with this one but the files."""

from __future__ import annotations

import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from tests.faults.killed import Fault, watch

#: What has not ended by then hangs.
PATIENCE_SECONDS = 150.0


class Ended(NamedTuple):
    """How an attempt ended: its exit code, minus a signal if that ended it, and what it said."""

    code: int
    said: str

    @property
    def sentence(self) -> str:
        return next((line[10:] for line in reversed(self.said.splitlines()) if line.startswith("skewless: ")), "")


class Attempt:
    """A running attempt."""

    def __init__(
        self,
        step: Callable[[], int],
        log: Path,
        roots: Sequence[Path] = (),
        fault: Fault | None = None,
        record: Path | None = None,
        room: int | None = None,
    ) -> None:
        self._log = log
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            _live(step, log, roots, fault, record, room)
        self._ended: int | None = None

    def stopped(self) -> bool:
        """Wait until it has paused itself; False if it ended without."""
        return os.WIFSTOPPED(self._awaited(os.WUNTRACED))

    def wake(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def running(self) -> bool:
        if self._ended is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self._ended = status if pid else None
        return self._ended is None

    def kill(self) -> None:
        kill_tree(self.pid)

    def ended(self) -> Ended:
        status = self._awaited(0) if self._ended is None else self._ended
        code = os.waitstatus_to_exitcode(status)
        return Ended(code, self._log.read_text(encoding="utf-8", errors="replace") if self._log.exists() else "")

    def _awaited(self, options: int) -> int:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            pid, status = os.waitpid(self.pid, options | os.WNOHANG)
            if pid:
                if not os.WIFSTOPPED(status):
                    self._ended = status
                return status
            if time.monotonic() > deadline:
                self.kill()
                os.waitpid(self.pid, 0)
                raise AssertionError(f"an attempt still ran after {PATIENCE_SECONDS:.0f} seconds")
            time.sleep(0.002)


def kill_tree(pid: int) -> None:
    """SIGKILL a process and all below it, those with a group of their own included."""
    try:
        family = [*psutil.Process(pid).children(recursive=True), psutil.Process(pid)]
    except psutil.NoSuchProcess:
        return
    for one in family:
        try:
            one.kill()
        except psutil.NoSuchProcess:
            continue


def _live(step: Callable[[], int], log: Path, roots: Any, fault: Fault | None, record: Path | None, room: Any) -> None:
    """The life of the child; it never returns into what it was forked from."""
    code = 70
    try:
        os.setsid()
        out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(out, 1)
        os.dup2(out, 2)
        sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
        if room is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))
        if roots:
            watch(roots, fault, record)
        code = step()
    except SystemExit as ending:
        code = ending.code if isinstance(ending.code, int) else int(ending.code is not None)
    except BaseException:  # noqa: BLE001  # the parent reads it
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError):
                stream.flush()
        os._exit(code)
