"""``python -m deploy.local up|down|demo|demo-stages``: Airflow on a laptop, for the commands of the Makefile.

It is a detached process tree, which is started, found again and stopped. SQLite, for one machine.

It lives in one folder and nowhere else, by default in ``<checkout>/.airflow``: a fresh clone starts empty, and two
clones do not see each other.
"""

import argparse
import contextlib
import json
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import httpx
from rich.console import Console

from deploy import PROJECT
from skewless.run.directory import RunDirectory
from skewless_airflow.runners.process_session import Session, begin, end
from skewless_cli import run_view, say

USER = "admin"
#: Below the folder of a local Airflow: what tells of its processes; the logs of tasks; what its own processes
#: print; and the password of ``USER``, readable by its owner only.
STATE, LOGS, OUTPUT = "running.json", "logs", "standalone.log"
PASSWORDS = "simple_auth_manager_passwords.json.generated"
#: The pool of Spark steps, made once Airflow is up: each step takes all cores of a laptop.
POOL = os.environ.get("SKEWLESS_POOL") or "spark"
POOL_SLOTS = 2

#: Where the data of the checkout's Airflow are: relative paths of specs start here.
DATA_ROOT = (os.environ.get("SKEWLESS_ROOT") or str(PROJECT / "data")).rstrip("/")

COMMAND = (sys.executable, "-P", "-m", "skewless_airflow.observability.log_files")

#: On two slow cores; measured about 20 s on two fast ones.
START_SECONDS = 240.0
#: Between two questions whether it is healthy.
_HEALTH_SECONDS = 0.2
#: A stopping Airflow first lets its tasks stop Spark.
STOP_SECONDS = 30.0

#: Jobs whose plans change virtual tasks, tokens and reducers, stage by stage.
DEMO_DAGS = {"demo": ("python_tokens",), "demo-stages": ("stages_by_buckets", "stages_by_reducers")}
#: Programs that write what these jobs read, unless it is there.
INPUTS = ("examples.demo_corpus", "examples.drifting_orders")
#: Lines of Airflow's log that the demo shows: a task begins, or one of ours says something.
_SHOWN = re.compile(r"\[DAG TEST\] starting (task_id=\S+)|^\S+ \[\w+ *\] ((?!::)\S.*?) +\[skewless_airflow")


class LocalAirflowError(Exception):
    """The local Airflow cannot be started or reached; one sentence that says why."""


@dataclass(frozen=True)
class Running(Session):
    """A local Airflow that was started, by its first process; ``port`` is that of UI and REST API."""

    port: int

    @property
    def url(self) -> str:
        """Where UI and REST API answer."""
        return f"http://localhost:{self.port}"

    def healthy(self) -> bool:
        """Whether API, scheduler and DAG processor all report that they are healthy."""
        with contextlib.suppress(httpx.HTTPError, ValueError):
            parts = httpx.get(f"{self.url}/api/v2/monitor/health", timeout=5, trust_env=False).json()
            return all(parts[part]["status"] == "healthy" for part in ("metadatabase", "scheduler", "dag_processor"))
        return False


def default_home() -> Path:
    """The home of this checkout's Airflow; ``$SKEWLESS_AIRFLOW_HOME`` is for a second one beside it."""
    return Path(os.environ.get("SKEWLESS_AIRFLOW_HOME") or PROJECT / ".airflow").resolve()


def recorded(home: Path) -> Running | None:
    """The local Airflow of a home as it was last started, whether it is up or not."""
    with contextlib.suppress(OSError, ValueError, TypeError):
        return Running(**json.loads((home / STATE).read_text()))
    return None


def start(home: Path, port: int, settings: Mapping[str, str] | None = None) -> Running:
    """Start a local Airflow; it outlives this process. Does not wait until it is healthy.

    The ``settings`` are of its environment, beside those of this process and instead of the usual ones.

    Raises:
        LocalAirflowError: the port is taken.
    """
    if not port_free(port):
        raise LocalAirflowError(
            f"Port {port} is taken by another program: stop that one, or choose a port with SKEWLESS_PORT=8081."
        )
    stop(home)  # what is left of one whose first process was killed
    (home / LOGS).mkdir(parents=True, exist_ok=True)
    _make_password(home)
    session = begin(COMMAND, environment(home, port, settings), home, home / OUTPUT)
    started = Running(session.pid, session.born, port)
    (home / STATE).write_text(json.dumps(asdict(started)))
    return started


def wait_until_healthy(home: Path, started: Running, seconds: float = START_SECONDS) -> None:
    """Wait for a started Airflow.

    Raises:
        LocalAirflowError: it ended, or it takes too long; with the end of its log.
    """
    begun = time.monotonic()
    while not started.healthy():
        passed = time.monotonic() - begun
        if started.leads() and passed <= seconds:
            time.sleep(_HEALTH_SECONDS)
            continue
        stop(home)
        raise LocalAirflowError(f"Airflow was not healthy after {passed:.0f} s; {last_words(home)}")
    # The API of tasks is built with its first call, for seconds: now, while DAGs are parsed, and not by the first task.
    with contextlib.suppress(httpx.HTTPError):
        httpx.get(f"{started.url}/execution/health", timeout=seconds, trust_env=False)


def make_pool(home: Path, started: Running) -> None:
    """Make the pool of Spark steps of a healthy Airflow, unless there is one of its name, which keeps its slots."""
    with httpx.Client(base_url=started.url, timeout=30, trust_env=False) as client:
        login = client.post("/auth/token", json={"username": USER, "password": password(home)}).raise_for_status()
        made = client.post(
            "/api/v2/pools", json={"name": POOL, "slots": POOL_SLOTS, "include_deferred": False},
            headers={"Authorization": f"Bearer {login.json()['access_token']}"},
        )  # fmt: skip
        if made.status_code != httpx.codes.CONFLICT:
            made.raise_for_status()


def stop(home: Path) -> bool:
    """Stop the local Airflow and everything it started; whether anything was running."""
    last = recorded(home)
    if last is None:
        return False
    was_running = bool(last.processes())
    end([last], STOP_SECONDS)
    (home / STATE).unlink(missing_ok=True)
    return was_running


def schedules_on() -> bool:
    """Whether DAGs run by their schedule, and not only by hand: ``SKEWLESS_SCHEDULE=on``."""
    return os.environ.get("SKEWLESS_SCHEDULE", "off") == "on"


def port_free(port: int) -> bool:
    """Whether a port of this machine is free."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((_host(), port))
        except OSError:
            return False
    return True


def free_port() -> int:
    """A free port of this machine."""
    with socket.socket() as probe:
        probe.bind((_host(), 0))
        return int(probe.getsockname()[1])


def environment(home: Path, port: int, settings: Mapping[str, str] | None = None) -> dict[str, str]:
    """The whole configuration of a local Airflow; it overrules what ``airflow.cfg`` in its home says."""
    url, local = f"http://localhost:{port}", "localhost,127.0.0.1"
    variables = {**os.environ, **(settings or {})}
    return {
        **variables,
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__DAGS_FOLDER": str(PROJECT / "dags"),
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(PROJECT / "plugins"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__EXECUTOR": "skewless_airflow.observability.log_files.LogFilesExecutor",
        "AIRFLOW__CORE__PARALLELISM": "4",
        "AIRFLOW__CORE__DAGBAG_IMPORT_ERROR_TRACEBACKS": "False",
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{url}/execution/",
        # The API server is the last component to answer, twenty seconds after the scheduler on a busy laptop: a task
        # that was interrupted waits for it then, instead of using up its tries.
        "AIRFLOW__WORKERS__EXECUTION_API_RETRIES": "40",
        "AIRFLOW__WORKERS__EXECUTION_API_RETRY_WAIT_MAX": "5",
        "AIRFLOW__WORKERS__EXECUTION_API_TIMEOUT": "30",
        # A supervisor that sees the last socket of a task close a moment before its process ends waits so many seconds,
        # until its next heartbeat, to look at the process again: five by default.
        "AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL": "1",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home / 'airflow.db'}",
        "AIRFLOW__LOGGING__BASE_LOG_FOLDER": str(home / LOGS),
        "AIRFLOW__API__HOST": _host(),
        "AIRFLOW__API__PORT": str(port),
        "AIRFLOW__API__BASE_URL": url,
        "AIRFLOW__DAG_PROCESSOR__PARSING_PROCESSES": "1",
        # How long the scheduler sleeps when it finds nothing to do. Airflow's own setting is a second, of which half
        # passes, on average, between two tasks.
        "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.2",
        # Unpausing a DAG with a schedule would start the run that was missed; on a laptop that is not wanted.
        "AIRFLOW__SCHEDULER__USE_JOB_SCHEDULE": str(schedules_on()),
        "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "local[*]"}),
        "SKEWLESS_CATALOG": variables.get("SKEWLESS_CATALOG") or str(PROJECT / "jobs" / "catalog"),
        "SKEWLESS_ROOT": DATA_ROOT,
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
        **(settings or {}),
    }


def _host() -> str:
    return os.environ.get("SKEWLESS_HOST", "127.0.0.1")


def _make_password(home: Path) -> None:
    """Make the password before Airflow does, because Airflow prints it into its log."""
    if (home / PASSWORDS).exists():
        return
    descriptor = os.open(home / PASSWORDS, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    with os.fdopen(descriptor, "w") as out:
        out.write(json.dumps({USER: secrets.token_urlsafe(12)}) + "\n")


def password(home: Path) -> str:
    """The password of ``USER``."""
    return str(json.loads((home / PASSWORDS).read_text())[USER])


def last_words(home: Path) -> str:
    """The last lines that Airflow has printed."""
    lines = (home / OUTPUT).read_text(errors="replace").splitlines() if (home / OUTPUT).exists() else []
    return f"the end of {home / OUTPUT} is:\n" + "\n".join(lines[-15:])


def main(arguments: list[str] | None = None) -> int:
    """Run one of the commands; the exit code is 1 after an error, 130 after Ctrl-C or SIGTERM."""
    parser = argparse.ArgumentParser(prog="python -m deploy.local", description=__doc__)
    parser.add_argument("command", choices=("up", "down", *DEMO_DAGS))
    command, console = parser.parse_args(arguments).command, Console()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a plain kill should clean up like Ctrl-C
    try:
        return {"up": up, "down": down}[command](console) if command in {"up", "down"} else demo(console, command)
    except LocalAirflowError as err:
        say(console, str(err))
        return 1
    except KeyboardInterrupt:
        say(console, "Interrupted.")
        return 130


def up(console: Console) -> int:
    """Start Airflow and say how to log in; it stays up."""
    home = default_home()
    server = recorded(home)
    if server is None or not server.leads():
        server = start(home, int(os.environ.get("SKEWLESS_PORT") or 8080))
        say(console, f"Starting Airflow on port {server.port} ...")
        try:
            wait_until_healthy(home, server)
            make_pool(home, server)
        except KeyboardInterrupt:
            stop(home)
            raise
    say(console, f"Airflow is up: {server.url}")
    say(console, f"Log in as {USER}; the password is in {home / PASSWORDS}")
    if console.is_terminal:  # never into a file or a CI log
        say(console, f"  user      {USER}\n  password  {password(home)}")
    if not schedules_on():
        say(console, "DAGs run only when they are triggered; with their schedules: SKEWLESS_SCHEDULE=on make up")
    say(console, "Stop it with: make down")
    return 0


def down(console: Console) -> int:
    """Stop Airflow."""
    say(console, "Airflow is stopped." if stop(default_home()) else "Airflow was not running.")
    return 0


def demo(console: Console, command: str) -> int:
    """Run DAGs of the catalog by ``airflow dags test``, without a scheduler, and show what came of them."""
    home = default_home()
    (home / LOGS).mkdir(parents=True, exist_ok=True)
    settings = environment(home, free_port())
    pool = (POOL, str(POOL_SLOTS), "Spark steps")
    setup = (*((name,) for name in INPUTS), ("airflow", "db", "migrate"), ("airflow", "pools", "set", *pool))
    for words in setup:
        _run(console, home, settings, *words)
    directories = []
    for name in DEMO_DAGS[command]:
        say(console, f"DAG {name} runs in Airflow, with Spark as local[*]; its whole log is in {home / OUTPUT}")
        _run(console, home, settings, "airflow", "dags", "test", name)
        runs = Path(DATA_ROOT, "runs", name)
        directories.append(RunDirectory(str(max(runs.iterdir(), key=lambda folder: folder.stat().st_mtime))))
    for directory in directories:
        run_view.show(directory, console)
    say(console, "To see them in the UI: make up")
    return 0


def _run(console: Console, home: Path, settings: Mapping[str, str], *words: str) -> None:
    with (
        (home / OUTPUT).open("w") as log,
        subprocess.Popen(  # noqa: S603  # our own words
            [sys.executable, "-m", *words], cwd=PROJECT, env=settings, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, errors="replace",
        ) as process,
    ):  # fmt: skip
        for line in process.stdout or ():
            log.write(line)
            if found := _SHOWN.search(line):
                say(console, f"  {found[1] or found[2]}")
    if process.returncode:
        raise LocalAirflowError(f"{' '.join(words)} failed; {last_words(home)}")


if __name__ == "__main__":
    sys.exit(main())
