"""The object store of the cluster as a process: a server from the lock, in the place of the container's."""

from __future__ import annotations

import sys
from dataclasses import replace

from deploy import PROJECT
from deploy.cluster.topology import LOOPBACK, Program

#: The program of localbucket, which keeps objects as files and honours ``If-None-Match``. It sends head and body of an
#: answer apart, and the kernel would wait 40 ms in between.
LOCALBUCKET = """
import socketserver, localbucket
socketserver.StreamRequestHandler.disable_nagle_algorithm = True
localbucket.main()
"""


def store_program(service: Program) -> Program:
    """The program of the service on this machine: it lets in everybody who reaches the loopback.

    Args:
        service: with the command ``minio server FOLDER --address HOST:PORT``.
    """
    folder, port = service.command[2], service.command[-1].rpartition(":")[2]
    command = (sys.executable, "-c", LOCALBUCKET, "--host", LOOPBACK, "--port", port, folder)
    health = (sys.executable, str(PROJECT / "deploy" / "docker" / "healthy.py"), f"http://{LOOPBACK}:{port}/")
    return replace(service, command=command, health=health)
