"""Processes of a test: none of them outlives it, so that a test that fails does not slow or break its neighbours."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from typing import Any


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
