"""Where processes listen, as the kernel has it."""

from __future__ import annotations

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
