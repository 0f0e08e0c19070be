"""A Spark Connect server on this machine for the steps of the local Airflow: started when a step needs it, and kept.

It lives in a folder of its own, which says how to reach it. With its token one can run code as the user who started
it, so each folder has a token of its own that only this user can read.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import socket
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import psutil

from skewless_airflow.connect.process_session import Session, begin, end
from skewless_airflow.connect.worker_code import code_stamp, worker_folders

_CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"
#: Names in the extra of a connection: the address of the server's Spark UI; whether our code is sent to its workers;
#: the connection for steps that ask for a size of their own; whether the server is a local one, which is started when
#: it does not run.
UI, SHIP, SIZED, LOCAL = "spark_ui", "ship_code", "sized_conn_id", "local_server"
#: Below the home of a local Airflow.
FOLDER = "spark_connect"
_STATE, _LOCK, _USERS, _LOG = "server.json", "lock", "users", "server.log"
_FAIR = Path(__file__).with_name("fair-scheduler.xml")
#: On two slow cores; measured about 10 s on two fast ones.
START_SECONDS = 180.0
STOP_SECONDS = 20.0

#: Settings for steps that share a server; timeouts release what a killed step held.
_SETTINGS = {
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.authenticate": "true",  # what listens beside it, block manager and driver, is asked for a secret
    "spark.connect.execute.manager.detachedTimeout": "60s",
    "spark.connect.session.manager.defaultSessionTimeout": "15m",
    "spark.scheduler.mode": "FAIR",
    "spark.scheduler.allocation.file": _FAIR.as_uri(),
    "spark.log.level": "WARN",
    "spark.ui.showConsoleProgress": "false",
    "spark.ui.killEnabled": "false",
    "spark.ui.retainedJobs": "200",
    "spark.ui.retainedStages": "400",
    "spark.sql.ui.retainedExecutions": "100",
}


class ConnectServerError(Exception):
    """The local Spark Connect server cannot be started; one sentence that says why."""


@dataclass(frozen=True)
class ConnectServer:
    """A local server, running or not.

    Attributes:
        port: of the server, on localhost.
        ui_port: of its Spark UI.
        token: the secret of its clients.
        memory: of its JVM, in Spark's notation; all steps share it.
        pid: of its first process, which leads a session; 0 before it was ever started.
        born: the start time of that process.
        code: the stamp of the code that its workers import, when it was started.
    """

    port: int
    ui_port: int
    token: str = field(repr=False)
    memory: str
    pid: int = 0
    born: int = 0
    code: str = ""

    @property
    def ui(self) -> str:
        """Where its Spark UI answers."""
        return f"http://localhost:{self.ui_port}"

    @property
    def session(self) -> Session:
        """All of its processes."""
        return Session(self.pid, self.born)

    def answers(self) -> bool:
        """Whether it, and not another program on its port, takes calls: clients send their token there."""
        ours = set(self.session.processes())
        listeners = {
            one.pid
            for one in psutil.net_connections("tcp")
            if one.status == psutil.CONN_LISTEN and one.laddr.port == self.port
        }
        if not ours & listeners:
            return False
        with contextlib.suppress(OSError), socket.create_connection(("localhost", self.port), timeout=5):
            return True
        return False


def describe(folder: Path, port: int, ui_port: int, memory: str) -> ConnectServer:
    """Describe a server that is to be started; one that still runs in the folder is stopped."""
    stop(folder)
    folder.mkdir(parents=True, exist_ok=True)
    server = ConnectServer(port, ui_port, secrets.token_urlsafe(24), memory)
    _write(folder, server)
    return server


def described(folder: Path) -> ConnectServer | None:
    """The server that a folder describes, if there is one."""
    with contextlib.suppress(OSError, ValueError, TypeError):
        return ConnectServer(**json.loads((folder / _STATE).read_text()))
    return None


def launch(folder: Path) -> None:
    """Start the server that a folder describes, unless it runs; does not wait until it answers."""
    with _alone(folder):
        _launched(folder)


@contextlib.contextmanager
def in_use(folder: Path) -> Iterator[ConnectServer]:
    """Have the server of a folder running and answering, with workers that have imported the current code.

    A server that was started before the code changed is replaced as soon as no step uses it.

    Raises:
        ConnectServerError: it ended while it started, or it takes too long.
    """
    folder.mkdir(parents=True, exist_ok=True)
    # The kernel releases the lock of a process that dies, and no child inherits it.
    with (folder / _USERS).open("w") as users:
        with _alone(folder):
            server = described(folder)
            if server and server.session.leads() and server.code != code_stamp(worker_folders()):
                fcntl.flock(users, fcntl.LOCK_EX)
                end([server.session], STOP_SECONDS)
            fcntl.flock(users, fcntl.LOCK_SH)
            server = _answering(folder)
        yield server


def stop(folder: Path) -> bool:
    """Stop a folder's server and all that it started; whether anything was running."""
    server = described(folder)
    if server is None or not server.pid:
        return False
    was_running = bool(server.session.processes())
    end([server.session], STOP_SECONDS)
    return was_running


def _answering(folder: Path) -> ConnectServer:
    server, begun = _launched(folder), time.monotonic()
    while not server.answers():
        if not server.session.leads():
            raise ConnectServerError(f"The local Spark Connect server ended while it started; see {folder / _LOG}.")
        if time.monotonic() - begun > START_SECONDS:
            end([server.session], STOP_SECONDS)  # so that the next step does not wait as long
            raise ConnectServerError(
                f"The local Spark Connect server did not answer after {START_SECONDS:.0f} s; see {folder / _LOG}."
            )
        time.sleep(0.2)
    return server


def _launched(folder: Path) -> ConnectServer:
    server = described(folder)
    if server is None:
        raise ConnectServerError(f"There is no local Spark Connect server in {folder}: start Airflow with make up.")
    if server.pid and server.session.leads():
        return server
    settings = {
        **_SETTINGS,
        "spark.connect.grpc.binding.port": str(server.port),
        "spark.ui.port": str(server.ui_port),
    }
    argv = ["spark-submit", "--class", _CLASS, "--name", "skewless steps", "--master", "local[*]"]
    argv += ["--driver-memory", server.memory]
    argv += [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    environment = {
        **os.environ,
        # spark-submit is beside this interpreter, which has what the workers import.
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        "SPARK_CONNECT_AUTHENTICATE_TOKEN": server.token,
        "SPARK_LOCAL_IP": "127.0.0.1",  # its UI and its driver listen on this machine only
        "SPARK_CONNECT_MODE": "0",  # this is the server, not one of its clients
        "PYSPARK_PYTHON": sys.executable,
    }
    code = code_stamp(worker_folders())  # before it starts, so that a change meanwhile makes it outdated
    session = begin([*argv, "spark-internal"], environment, folder, folder / _LOG)
    server = replace(server, pid=session.pid, born=session.born, code=code)
    _write(folder, server)
    return server


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """One at a time: of two steps that find no server, one starts it and the other waits."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / _LOCK).open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


def _write(folder: Path, server: ConnectServer) -> None:
    """Write atomically, to a file that only its owner can ever read."""
    fresh = folder / f"{_STATE}.new"
    fresh.unlink(missing_ok=True)
    descriptor = os.open(fresh, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    with os.fdopen(descriptor, "w") as out:
        out.write(json.dumps(asdict(server)) + "\n")
    fresh.replace(folder / _STATE)
