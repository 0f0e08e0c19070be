"""A local Airflow as a detached process tree: start, find again, stop. SQLite, for one laptop.

It lives in ``<checkout>/.airflow`` and nowhere else, so that a fresh clone starts empty and two
clones do not see each other.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import httpx

from deploy import PROJECT, checkout_folders
from skewless_airflow.connect import server as connect_server
from skewless_airflow.connect.process_session import Session, begin, end

#: ``$SKEWLESS_AIRFLOW_HOME`` is for a second one beside it, as the tests have.
HOME = Path(os.environ.get("SKEWLESS_AIRFLOW_HOME") or PROJECT / ".airflow").resolve()
LOGS = HOME / "logs"
SERVER_LOG = HOME / "standalone.log"
_STATE = HOME / "running.json"
_PASSWORDS = HOME / "simple_auth_manager_passwords.json.generated"
USER = "admin"
#: The pool of Spark steps, made once Airflow is up: each step takes all cores of a laptop.
POOL = os.environ.get("SKEWLESS_POOL") or "spark"
POOL_SLOTS = 2
#: How steps get to Spark: each by a spark-submit of its own, or all as clients of one Spark Connect server.
SUBMIT, CONNECT = "submit", "connect"
_CONNECT_FOLDER = HOME / connect_server.FOLDER
#: The connection of steps that are submitted whatever the others do, because they want a size of their own.
_SUBMITTED = "spark_submitted"

#: What starts it.
COMMAND = (sys.executable, "-m", "skewless_airflow.observability.log_files")

#: On two slow cores; measured about 20 s on two fast ones.
START_SECONDS = 240.0
#: A stopping Airflow first lets its tasks stop Spark.
STOP_SECONDS = 30.0


class LocalAirflowError(Exception):
    """The local Airflow cannot be started or reached; one sentence that says why."""


@dataclass(frozen=True)
class Running:
    """A local Airflow that was started.

    Attributes:
        pid: of the first process; it leads a session that all others belong to.
        born: its start time in clock ticks since boot, so that a reused pid is not taken for it.
        port: of UI and REST API.
    """

    pid: int
    born: int
    port: int

    @property
    def url(self) -> str:
        """Where UI and REST API answer."""
        return f"http://localhost:{self.port}"

    def healthy(self) -> bool:
        """Whether API, scheduler and DAG processor all report for work."""
        with contextlib.suppress(httpx.HTTPError, ValueError):
            parts = httpx.get(f"{self.url}/api/v2/monitor/health", timeout=5, trust_env=False).json()
            return all(parts[part]["status"] == "healthy" for part in ("metadatabase", "scheduler", "dag_processor"))
        return False

    def processes(self) -> list[int]:
        """The living processes of its session; components make groups of their own, but stay in it."""
        return self.session.processes()

    @property
    def session(self) -> Session:
        """The session that all of its processes belong to."""
        return Session(self.pid, self.born)


def running() -> Running | None:
    """The local Airflow of this checkout, if one is up."""
    with contextlib.suppress(OSError, ValueError, TypeError):
        found = Running(**json.loads(_STATE.read_text()))
        if found.session.leads():
            return found
    return None


def start(port: int) -> Running:
    """Start a local Airflow; it outlives this process. Does not wait until it is healthy.

    Raises:
        LocalAirflowError: the port is taken.
    """
    if not port_free(port):
        raise LocalAirflowError(
            f"Port {port} is taken by another program: stop that one, or choose a port with SKEWLESS_PORT=8081."
        )
    stop()  # what is left of one whose first process was killed
    LOGS.mkdir(parents=True, exist_ok=True)
    _make_password()
    if steps() == CONNECT:
        # As much as two steps at a time would take that are submitted.
        memory = os.environ.get("SKEWLESS_CONNECT_MEMORY") or "4g"
        connect_server.describe(_CONNECT_FOLDER, free_port(), free_port(), memory)
        connect_server.launch(_CONNECT_FOLDER)  # the first step waits for it
    session = begin(COMMAND, environment(port), HOME, SERVER_LOG)
    started = Running(session.pid, session.born, port)
    _STATE.write_text(json.dumps(asdict(started)))
    return started


def wait_until_healthy(started: Running, tick: Callable[[float], None]) -> None:
    """Wait for a started Airflow, calling ``tick`` with the seconds passed about once a second.

    Raises:
        LocalAirflowError: it ended, or it takes too long; with its last words.
    """
    begun = time.monotonic()
    while not started.healthy():
        passed = time.monotonic() - begun
        if not started.session.leads():
            raise LocalAirflowError(f"Airflow ended while it started; {_last_words()}")
        if passed > START_SECONDS:
            stop()
            raise LocalAirflowError(f"Airflow was not healthy after {passed:.0f} s; {_last_words()}")
        tick(passed)
        time.sleep(1)


def stop() -> bool:
    """Stop the local Airflow and everything it started.

    Returns:
        Whether anything was running.
    """
    try:
        found = Running(**json.loads(_STATE.read_text()))
    except (OSError, ValueError, TypeError):
        return connect_server.stop(_CONNECT_FOLDER)  # it was started first, and Airflow perhaps not any more
    was_running = bool(found.processes())
    end([found.session], STOP_SECONDS)
    connect_server.stop(_CONNECT_FOLDER)  # after the tasks, which may just be using it
    _STATE.unlink(missing_ok=True)
    return was_running


def password() -> str:
    """The password of ``USER``."""
    return str(json.loads(_PASSWORDS.read_text())[USER])


def password_file() -> Path:
    """The file that holds the password, readable by its owner only."""
    return _PASSWORDS


def schedules_on() -> bool:
    """Whether DAGs run by their schedule, and not only by hand: ``SKEWLESS_SCHEDULE=on``."""
    return os.environ.get("SKEWLESS_SCHEDULE", "off") == "on"


def steps() -> str:
    """How steps get to Spark: ``SKEWLESS_STEPS=connect``, which takes a third of the time (B8), or ``submit``.

    Raises:
        LocalAirflowError: it is neither.
    """
    given = os.environ.get("SKEWLESS_STEPS") or CONNECT
    if given not in (SUBMIT, CONNECT):
        raise LocalAirflowError(f"SKEWLESS_STEPS is {given!r}: it has to be {SUBMIT} or {CONNECT}.")
    return given


def port_free(port: int) -> bool:
    """Whether nobody listens on a port of this machine."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((_host(), port))
        except OSError:
            return False
    return True


def free_port() -> int:
    """A port nobody listens on."""
    with socket.socket() as probe:
        probe.bind((_host(), 0))
        return int(probe.getsockname()[1])


def environment(port: int) -> dict[str, str]:
    """The whole configuration of the local Airflow; what the file in its home says is overruled."""
    url = f"http://localhost:{port}"
    local = "localhost,127.0.0.1"
    return {
        **os.environ,
        "AIRFLOW_HOME": str(HOME),
        "AIRFLOW__CORE__DAGS_FOLDER": str(PROJECT / "dags"),
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(PROJECT / "plugins"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__EXECUTOR": "skewless_airflow.observability.log_files.LogFilesExecutor",
        "AIRFLOW__CORE__PARALLELISM": "4",
        "AIRFLOW__CORE__DAGBAG_IMPORT_ERROR_TRACEBACKS": "False",
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{url}/execution/",
        # Of what starts together the API server is the last to answer, twenty seconds after the scheduler on a busy
        # laptop: a task that was interrupted waits for it then, instead of using up its tries.
        "AIRFLOW__WORKERS__EXECUTION_API_RETRIES": "40",
        "AIRFLOW__WORKERS__EXECUTION_API_RETRY_WAIT_MAX": "5",
        "AIRFLOW__WORKERS__EXECUTION_API_TIMEOUT": "30",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{HOME / 'airflow.db'}",
        "AIRFLOW__LOGGING__BASE_LOG_FOLDER": str(LOGS),
        "AIRFLOW__API__HOST": _host(),
        "AIRFLOW__API__PORT": str(port),
        "AIRFLOW__API__BASE_URL": url,
        "AIRFLOW__DAG_PROCESSOR__PARSING_PROCESSES": "1",
        # Unpausing a DAG starts the night that was missed, at once; on a laptop nobody asked for that.
        "AIRFLOW__SCHEDULER__USE_JOB_SCHEDULE": str(schedules_on()),
        "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
        **_connections(),
        **checkout_folders(),
        "SKEWLESS_POOL": POOL,
        # spark-submit is beside this interpreter, which has what the entries import.
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        "PYSPARK_PYTHON": sys.executable,
        # Where a submitted step's driver, its block manager and its UI listen.
        "SPARK_LOCAL_IP": os.environ.get("SPARK_LOCAL_IP", "127.0.0.1"),
        "NO_COLOR": "1",
        # A proxy of the laptop is not for its own tasks talking to its own API.
        "NO_PROXY": ",".join(filter(None, (os.environ.get("NO_PROXY"), local))),
        "no_proxy": ",".join(filter(None, (os.environ.get("no_proxy"), local))),
    }


def _connections() -> dict[str, str]:
    """The connections by which steps get to Spark."""
    submitted = {"conn_type": "spark", "host": "local[*]"}
    server = connect_server.described(_CONNECT_FOLDER) if steps() == CONNECT else None
    if server is None:
        return {"AIRFLOW_CONN_SPARK_DEFAULT": json.dumps(submitted)}
    extra = {
        connect_server.LOCAL: True,
        connect_server.UI: server.ui,
        connect_server.SIZED: _SUBMITTED,
    }
    # A client shows its token to "localhost" without TLS, and to no other name.
    connected = {
        "conn_type": "spark_connect", "host": "localhost", "port": server.port, "password": server.token,
        "extra": extra,
    }  # fmt: skip
    return {
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps(connected),
        f"AIRFLOW_CONN_{_SUBMITTED.upper()}": json.dumps(submitted),
    }


def _host() -> str:
    return os.environ.get("SKEWLESS_HOST", "127.0.0.1")


def _make_password() -> None:
    """Make the password before Airflow does, because Airflow prints it into its log."""
    if _PASSWORDS.exists():
        return
    descriptor = os.open(_PASSWORDS, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    with os.fdopen(descriptor, "w") as out:
        out.write(json.dumps({USER: secrets.token_urlsafe(12)}) + "\n")


def _last_words() -> str:
    lines = SERVER_LOG.read_text(errors="replace").splitlines() if SERVER_LOG.exists() else []
    tail = "\n".join(lines[-15:])
    return f"the end of {SERVER_LOG} is:\n{tail}"
