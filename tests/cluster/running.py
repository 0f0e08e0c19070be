"""The services of ``docker-compose.yml`` as running programs: started in order, stopped in reverse.

Every program leads a session of its own, so that one of them can be killed as a container can, with all that it
started, and the others stay.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from deploy import PROJECT
from deploy.local import free_port, port_free
from skewless_airflow.runners.process_session import Session, await_end, begin, end, send
from tests.cluster.composition import LOOPBACK, Service, lay_out, read_composition
from tests.cluster.database import find_postgres, store_program

COMPOSE_FILE = PROJECT / "docker-compose.yml"
USER = "admin"

#: Until a service is healthy: the first migration of Airflow's database, on two slow, busy cores.
START_SECONDS = 300.0
#: How long each request to stop may take before a stronger one; a stopping task first stops Spark.
STOP_SECONDS = 15.0

#: What `ENV` in the Dockerfile sets for all services, for this machine.
IMAGE_ENVIRONMENT = {
    "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
    "PYSPARK_PYTHON": sys.executable,
    "PYTHONUNBUFFERED": "1",
    "NO_COLOR": "1",
}
#: Variables of this machine that a process needs and a container does not.
_OF_THE_MACHINE = ("HOME", "JAVA_HOME", "LANG", "TMPDIR", "TZ")

#: Below the folder of a cluster, beside volumes and image: passwords and keys; what each service prints.
SECRETS, OUTPUT = ".env", "output"


@dataclass(frozen=True)
class Cluster:
    """A cluster of this process.

    Attributes:
        programs: by service, each after those that it waits for.
        ports: by port of a container the port on this machine.
        sessions: of the programs that were started.
    """

    home: Path
    programs: Mapping[str, Service]
    ports: Mapping[int, int]
    sessions: dict[str, Session] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return self.address(8080)

    def address(self, port: int) -> str:
        return f"http://localhost:{self.ports[port]}"

    def kill(self, service: str) -> None:
        send(self.sessions[service].processes(), signal.SIGKILL)

    def start(self) -> None:
        """Start all services, each when those it waits for are healthy."""
        for name, program in self.programs.items():
            for other, condition in program.after.items():
                if condition == "service_healthy":
                    self._await_health(other)
            self.sessions[name] = begin(program.command, program.environment, self.home, self._log(name))
            if program.once:
                code = psutil.Process(self.sessions[name].pid).wait(START_SECONDS)
                assert code == 0, f"{name} has ended with {code}: {self._last_words(name)}"
        for name, program in self.programs.items():
            if not program.once:
                self._await_health(name)

    def stop(self) -> None:
        """Stop each service before those that it waits for."""
        layers = dict[str, int]()
        for name, program in self.programs.items():
            layers[name] = 1 + max((layers[other] for other in program.after), default=0)
        for layer in sorted(set(layers.values()), reverse=True):
            mine = {name: session for name, session in self.sessions.items() if layers[name] == layer}
            for name, session in mine.items():
                if session.leads():
                    send([session.pid], signal.Signals[self.programs[name].stop_signal])
            await_end([*mine.values()], STOP_SECONDS)
            end([*mine.values()], STOP_SECONDS)

    def _await_health(self, name: str) -> None:
        program, begun = self.programs[name], time.monotonic()
        while subprocess.run(  # the command is from our compose file
            program.health, env=dict(program.environment), cwd=self.home, capture_output=True, check=False
        ).returncode:
            patient = self.sessions[name].leads() and time.monotonic() - begun < START_SECONDS
            assert patient, f"{name} is not healthy: {self._last_words(name)}"
            time.sleep(1)

    def _log(self, name: str) -> Path:
        return self.home / OUTPUT / f"{name}.log"

    def _last_words(self, name: str) -> str:
        return "\n".join(self._log(name).read_text(errors="replace").splitlines()[-15:])


@contextmanager
def home_of_tests() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="skewless-cluster-"))
    folder.chmod(0o755)  # PostgreSQL's user passes through
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def started(home: Path, job: Mapping[str, Any]) -> Iterator[Cluster]:
    """The cluster, with one job in its catalog and no demo."""
    catalog = home / "catalog"
    catalog.mkdir()
    (catalog / f"{job['name']}.yaml").write_text(yaml.safe_dump(dict(job)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SKEWLESS_CATALOG", str(catalog))
        patch.setenv("SKEWLESS_DEMO_CORPUS", "no")
        patch.setenv("SKEWLESS_DRIVER_MEMORY", "1g")
        patch.setenv("SPARK_WORKER_MEMORY", "1500m")
        cluster = _laid_out(home)
        try:
            cluster.start()
            yield cluster
        finally:
            cluster.stop()
    left = [name for name, session in cluster.sessions.items() if session.processes()]
    assert not left, "a cluster that was stopped leaves nothing behind"


def _laid_out(home: Path) -> Cluster:
    services = read_composition(COMPOSE_FILE, variables(home))

    def port(published: int | None) -> int:
        return published if published is not None and port_free(published) else free_port()

    topology = lay_out(services, PROJECT, home, port)
    volumes = {mount.source for one in services.values() for mount in one.mounts if mount.named}
    for folder in (*volumes, "airflow", OUTPUT):
        (home / folder).mkdir(exist_ok=True)
    return Cluster(home, {name: on_this_machine(one) for name, one in topology.programs.items()}, topology.ports)


def variables(home: Path) -> dict[str, str]:
    """The values of the compose file's variables: the secrets in ``.env``, overridden by the environment.

    The first call makes the secrets.
    """
    script = [sys.executable, str(PROJECT / "deploy" / "docker" / "make_env.py"), str(home / SECRETS)]
    subprocess.run(script, capture_output=True, check=True)
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
