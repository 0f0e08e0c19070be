"""The services of ``docker-compose.yml`` as running programs: started in order, found again, stopped in reverse.

It lives in one folder. Every program leads a session of its own, so that one
of them can be killed as a container can, with all that it started, and the others stay.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import psutil

from deploy import PROJECT
from deploy.local import free_port, port_free
from skewless_airflow.runners.process_session import Session, await_end, begin, end, send
from tests.cluster.composition import LOOPBACK, ClusterError, Service, Topology, lay_out, read_composition
from tests.cluster.database import find_postgres, store_program

COMPOSE_FILE = PROJECT / "docker-compose.yml"
USER = "admin"

#: Until a service is healthy: the first migration of Airflow's database, on two slow, busy cores.
START_SECONDS = 300.0
#: How long each request to stop may take before a stronger one; a stopping task first stops Spark.
STOP_SECONDS = 15.0

#: Makes other services of those in the compose file, each after those that it waits for.
Change = Callable[[dict[str, Service]], dict[str, Service]]

#: What `ENV` in the Dockerfile sets for all services, for this machine.
IMAGE_ENVIRONMENT = {
    "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
    "PYSPARK_PYTHON": sys.executable,
    "PYTHONUNBUFFERED": "1",
    "NO_COLOR": "1",
}
#: Variables of this machine that a process needs and a container does not.
_OF_THE_MACHINE = ("HOME", "JAVA_HOME", "LANG", "TMPDIR", "TZ")


#: Below the folder of a cluster, beside volumes and image: its processes; passwords and keys; what each service prints.
STATE, SECRETS, OUTPUT = "running.json", ".env", "output"


@dataclass(frozen=True)
class Cluster:
    """A cluster that was started.

    Attributes:
        sessions: by service, in the order in which they were started.
        stop_signals: the name of the signal that asks each to stop.
        layers: 0 for a service that waits for none, else one more than the services it waits for; stopped in reverse.
        ports: by port of a container the port on this machine.
    """

    sessions: Mapping[str, Session]
    stop_signals: Mapping[str, str]
    layers: Mapping[str, int]
    ports: Mapping[int, int]

    @property
    def url(self) -> str:
        return f"http://localhost:{self.ports[8080]}"

    def address(self, port: int) -> str:
        return f"http://localhost:{self.ports[port]}"

    def alive(self) -> bool:
        return any(one.processes() for one in self.sessions.values())

    def kill(self, service: str) -> None:
        send(self.sessions[service].processes(), signal.SIGKILL)


def describe(home: Path, variables: Mapping[str, str], change: Change = dict) -> tuple[dict[str, Service], Topology]:
    """The services of the compose file, changed if so wanted, and the same services as programs of this machine."""
    services = change(read_composition(COMPOSE_FILE, variables))

    def port(published: int | None) -> int:
        return published if published is not None and port_free(published) else free_port()

    return services, lay_out(services, PROJECT, home, port)


def start(home: Path, tell: Callable[[str], None], change: Change = dict) -> Cluster:
    """Start all services, each when those it waits for are healthy; they outlive this process.

    ``change`` makes other services of those in the compose file, such as workers of another executor.

    Raises:
        ClusterError: something does not start; what was started is stopped again.
    """
    stop(home)  # what is left of one that was killed
    for folder in (home, home / OUTPUT):
        folder.mkdir(parents=True, exist_ok=True)
    home.chmod(0o711)  # PostgreSQL's user passes through
    services, topology = describe(home, variables(home), change)
    for mount in {mount.source for one in services.values() for mount in one.mounts if mount.named}:
        (home / mount).mkdir(exist_ok=True)
    (home / "airflow").mkdir(exist_ok=True)
    programs: dict[str, Service] = {}
    begun: dict[str, Session] = {}
    layers: dict[str, int] = {}
    for name, fitted in topology.programs.items():
        program = programs[name] = on_this_machine(fitted)
        for other, condition in program.after.items():
            if condition == "service_healthy":
                _await_health(home, programs[other], begun[other])
                tell(other)
        begun[name] = begin(program.command, program.environment, home, home / OUTPUT / f"{name}.log")
        layers[name] = 1 + max((layers[other] for other in program.after), default=0)
        signals = {other: programs[other].stop_signal for other in begun}
        cluster = Cluster(begun, signals, layers, topology.ports)
        (home / STATE).write_text(json.dumps(asdict(cluster)))
        if program.once:
            _await_success(home, name, begun[name])
            tell(name)
    for name, program in programs.items():
        if not program.once:
            _await_health(home, program, begun[name])
            tell(name)
    return cluster


def stop(home: Path) -> bool:
    """Stop the cluster, a service before those that it waits for; whether anything was running."""
    found = _recorded(home)
    if found is None:
        return False
    was_running = found.alive()
    for layer in sorted(set(found.layers.values()), reverse=True):
        mine = [name for name, depth in found.layers.items() if depth == layer and name in found.sessions]
        for name in mine:
            if found.sessions[name].leads():
                send([found.sessions[name].pid], signal.Signals[found.stop_signals[name]])
        await_end([found.sessions[name] for name in mine], STOP_SECONDS)
        end([found.sessions[name] for name in mine], STOP_SECONDS)
    (home / STATE).unlink(missing_ok=True)
    return was_running


def variables(home: Path) -> dict[str, str]:
    """The values of the compose file's variables: the secrets in ``.cluster/.env``, overridden by the environment.

    The first call makes the secrets.
    """
    made = subprocess.run(  # our own script
        [sys.executable, str(PROJECT / "deploy" / "docker" / "make_env.py"), str(home / SECRETS)],
        capture_output=True,
        check=False,
    )
    if made.returncode:
        raise ClusterError(f"file {home / SECRETS}", "one that can be written", made.stderr.decode().strip())
    lines = (line.partition("=") for line in (home / SECRETS).read_text(encoding="utf-8").splitlines())
    return {**{name: value for name, _, value in lines}, **os.environ}


def password(home: Path) -> str:
    return variables(home)["SKEWLESS_ADMIN_PASSWORD"]


def on_this_machine(program: Service) -> Service:
    """The program with this machine's environment; PostgreSQL and the object store are those of this machine."""
    machine = {name: os.environ[name] for name in _OF_THE_MACHINE if name in os.environ}
    # All traffic is on the loopback: no other machine can connect, and no proxy is needed.
    alone = {"SPARK_LOCAL_IP": LOOPBACK, "NO_PROXY": "*", "no_proxy": "*"}
    whole = replace(program, environment={**machine, **IMAGE_ENVIRONMENT, **alone, **program.environment})
    if program.name == "object-store":
        return store_program(whole)
    if program.name != "postgres":
        return whole
    postgres = find_postgres()
    postgres.prepare(whole.environment)
    return postgres.program(whole)


def _await_health(home: Path, program: Service, session: Session) -> None:
    begun = time.monotonic()
    while subprocess.run(  # the command is from our compose file
        program.health, env=dict(program.environment), cwd=home, capture_output=True, check=False
    ).returncode:
        passed, alive = time.monotonic() - begun, session.leads()
        if not alive or passed > START_SECONDS:
            wanted = f"health within {passed:.0f} s" if alive else "a service that stays up"
            raise ClusterError(f"service {program.name}", wanted, _last_words(home, program.name))
        time.sleep(1)


def _await_success(home: Path, name: str, session: Session) -> None:
    try:
        code = psutil.Process(session.pid).wait(START_SECONDS)
    except psutil.NoSuchProcess:
        code = None
    except psutil.TimeoutExpired:
        end([session], STOP_SECONDS)
        wanted = f"an end within {START_SECONDS:.0f} s"
        raise ClusterError(f"service {name}", wanted, _last_words(home, name)) from None
    if code is None:
        raise ClusterError(f"service {name}", "an exit code", "none: another process has collected it")
    if code:
        raise ClusterError(f"service {name}", "exit code 0", f"{int(code)}; {_last_words(home, name)}")


def _recorded(home: Path) -> Cluster | None:
    try:
        held = json.loads((home / STATE).read_text())
        sessions = {name: Session(**one) for name, one in held["sessions"].items()}
        ports = {int(inside): here for inside, here in held["ports"].items()}
        return Cluster(sessions, held["stop_signals"], held["layers"], ports)
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _last_words(home: Path, name: str) -> str:
    file = home / OUTPUT / f"{name}.log"
    lines = file.read_text(errors="replace").splitlines() if file.exists() else []
    return f"the end of {file}:\n" + "\n".join(lines[-15:]) + "\n"
