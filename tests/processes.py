"""Processes of a test: none of them outlives it, so that a test that fails does not slow or break its neighbours."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

#: A loaded machine may take its time for anything; only what is promised is measured.
PATIENCE_SECONDS = 30.0
#: Each JVM of a test lives for seconds or minutes: how soon it is up matters, and not how fast its code is in the end.
JVM_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def until(condition: Callable[[], object], what: object, seconds: float = PATIENCE_SECONDS) -> None:
    """Wait until a condition holds, and look for it the less often the longer that takes.

    ``what`` is waited for: words, or what gives them when it was waited for in vain.
    """
    began, waited = time.monotonic(), 0.0
    while not condition():
        assert waited < seconds, f"waited {seconds:.0f} s in vain for: {what() if callable(what) else what}"
        time.sleep(min(0.5, 0.005 + waited / 100))
        waited = time.monotonic() - began


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Told:
    """A script in a process of its own, which does what it is told by lines and says by lines what happens."""

    def __init__(self, script: Path, *arguments: str) -> None:
        command = [sys.executable, str(script), *arguments]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            self.lines.append(line)

    def tell(self, line: str) -> None:
        assert self.process.stdin
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def end(self) -> None:
        assert self.process.stdin
        assert self.process.stdout
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process.pid, signal.SIGCONT)
        self.process.wait(PATIENCE_SECONDS)
        self._reader.join()
        self.process.stdout.close()


@contextlib.contextmanager
def side_by_side(commands: Sequence[Sequence[str]], **options: Any) -> Iterator[list[subprocess.Popen[str]]]:
    """Start processes, each with a group of its own; at the end their groups are killed."""
    with contextlib.ExitStack() as held:
        begun = []
        for command in commands:
            process = subprocess.Popen(list(command), text=True, start_new_session=True, **options)
            held.callback(_end, process)
            begun.append(process)
        yield begun


def _end(process: subprocess.Popen[str]) -> None:
    # What a process has started itself may live on when the process is gone.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            stream.close()
