"""Whether a process has been stopped: by SIGSTOP, by a terminal, or by a debugger that holds it."""

from __future__ import annotations

import subprocess
from pathlib import Path


def is_stopped(pid: int) -> bool:
    """Whether the process is there and does not run because it was told not to.

    One that computes, sleeps or waits for a disk is not stopped.
    """
    state = state_from_proc(pid) if Path("/proc/self/stat").exists() else state_from_ps(pid)
    return state in {"T", "t"}


def state_from_proc(pid: int) -> str | None:
    """The letter of a process's state on Linux; None if there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name in parentheses may hold anything; the state is the first field after it.
    return text.rpartition(")")[2].split()[0]


def state_from_ps(pid: int) -> str | None:
    """The same where there is no /proc, from ps."""
    command = ["/bin/ps", "-o", "stat=", "-p", str(pid)]
    asked = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - a number is all we add
    return asked.stdout.strip()[:1] or None
