"""PostgreSQL and an object store of our own, in the place of those that the compose file has images of."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from deploy import PROJECT
from tests.cluster.composition import LOOPBACK, ClusterError, Service

#: The release that the compose file names.
RELEASE = "15"
_DEBIAN = Path("/usr/lib/postgresql") / RELEASE / "bin"
#: The user that Debian's package makes; PostgreSQL refuses to run as root.
_OWNER = "postgres"


@dataclass(frozen=True)
class Postgres:
    """An installation of PostgreSQL, and the words before a command that make it run as another user than root."""

    binaries: Path
    prefix: tuple[str, ...]

    def program(self, service: Service) -> Service:
        """The program of the service on this machine: on the loopback only, with its socket in the data folder."""
        data = service.environment["PGDATA"]
        here = ("-D", data, "-c", f"listen_addresses={LOOPBACK}", "-c", f"unix_socket_directories={data}")
        command = (*self.prefix, str(self.binaries / service.command[0]), *here, *service.command[1:])
        return replace(service, command=command, health=(str(self.binaries / service.health[0]), *service.health[1:]))

    def prepare(self, environment: Mapping[str, str]) -> None:
        """Initialise ``PGDATA``."""
        data = Path(environment["PGDATA"])
        data.parent.mkdir(parents=True, exist_ok=True)
        if self.prefix:
            shutil.chown(data.parent, _OWNER, _OWNER)
        password = data.parent / "password"
        descriptor = os.open(password, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600)
        with os.fdopen(descriptor, "w") as out:
            out.write(environment["POSTGRES_PASSWORD"])
        if self.prefix:
            shutil.chown(password, _OWNER, _OWNER)
        try:
            self._initialise(data, environment, password)
        finally:
            password.unlink()

    def _initialise(self, data: Path, environment: Mapping[str, str], password: Path) -> None:
        owner, name = environment["POSTGRES_USER"], environment["POSTGRES_DB"]
        self._run([
            str(self.binaries / "initdb"), "-D", str(data), "-U", owner, "--pwfile", str(password),
            "-A", "scram-sha-256", "-E", "UTF8", "--locale", "C.UTF-8", "--no-sync",
        ])  # fmt: skip
        single = [str(self.binaries / "postgres"), "--single", "-D", str(data), "postgres"]
        self._run(single, said=f'CREATE DATABASE "{name}"\n')

    def _run(self, command: list[str], said: str = "") -> None:
        subprocess.run([*self.prefix, *command], input=said, text=True, check=True, cwd="/")  # our own words


def find_postgres() -> Postgres:
    """The PostgreSQL of this machine, and as root the user that its package makes."""
    on_path = shutil.which("initdb")
    found = _DEBIAN if (_DEBIAN / "initdb").exists() else Path(on_path).parent if on_path else None
    if found is None:
        raise ClusterError(
            "cluster", f"PostgreSQL {RELEASE}", f"neither {_DEBIAN} nor initdb on the PATH",
            f"install it (Debian: apt-get install postgresql-{RELEASE}); its service need not run",
        )  # fmt: skip
    as_owner = ("setpriv", f"--reuid={_OWNER}", f"--regid={_OWNER}", "--init-groups")
    return Postgres(found, () if os.geteuid() else as_owner)


#: The program of localbucket, which keeps objects as files and honours ``If-None-Match``. It sends head and body of an
#: answer apart, and the kernel would wait 40 ms in between.
LOCALBUCKET = """
import socketserver, localbucket
socketserver.StreamRequestHandler.disable_nagle_algorithm = True
localbucket.main()
"""


def store_program(service: Service) -> Service:
    """The service ``minio server FOLDER --address HOST:PORT`` on this machine: all who reach the loopback may enter."""
    folder, port = service.command[2], service.command[-1].rpartition(":")[2]
    command = (sys.executable, "-c", LOCALBUCKET, "--host", LOOPBACK, "--port", port, folder)
    health = (sys.executable, str(PROJECT / "deploy" / "docker" / "healthy.py"), f"http://{LOOPBACK}:{port}/")
    return replace(service, command=command, health=health)
