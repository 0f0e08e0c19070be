"""Where processes listen, as the kernel has it; the processes of warm drivers."""

import contextlib
from collections.abc import Iterable

import psutil

#: How an address begins that nobody outside of this machine can reach.
LOOPBACK = ("127.", "::1 ", "::ffff:127.")


def listening(pids: Iterable[int]) -> set[str]:
    """Address and port of each TCP socket that one of the processes listens on."""
    found = set()
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            found |= {
                f"{one.laddr.ip} {one.laddr.port}"
                for one in psutil.Process(pid).net_connections("tcp")
                if one.status == psutil.CONN_LISTEN
            }
    return found


def drivers_of(words: str, program: str = "warm_driver.py") -> list[psutil.Process]:
    """The living processes of drivers that have these words in their command line, and what they have started."""
    found: dict[int, psutil.Process] = {}
    for one in psutil.process_iter():
        with contextlib.suppress(psutil.NoSuchProcess):
            line = " ".join(one.cmdline())
            if program in line and words in line:
                found |= {process.pid: process for process in (one, *one.children(recursive=True))}
    return [one for one in found.values() if one.is_running() and one.status() != psutil.STATUS_ZOMBIE]
