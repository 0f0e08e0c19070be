"""Whether a process has been stopped: by SIGSTOP, by a terminal, or by a debugger that holds it."""

from __future__ import annotations

import subprocess
from pathlib import Path


def is_stopped(pid: int) -> bool:
    """Whether the process is there and does not run because it was told not to.

    One that computes, sleeps or waits for a disk is not stopped.
    """
    stat = Path(f"/proc/{pid}/stat")
    if stat.exists():
        try:
            text = stat.read_text(encoding="utf-8", errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            return False
        # The name in parentheses may hold anything; the state is the first field after it.
        return text.rpartition(")")[2].split()[0] in {"T", "t"}
    asked = subprocess.run(  # a system without /proc
        ["/bin/ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return asked.stdout.strip().startswith("T")
