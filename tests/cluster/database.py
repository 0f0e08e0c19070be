"""PostgreSQL and an object store of our own, in the place of those that the compose file has images of."""

import os
import pwd
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
        """Initialise ``PGDATA`` unless that is done.

        Raises:
            ClusterError: PostgreSQL refused, or its user may not enter the folder.
        """
        data = Path(environment["PGDATA"])
        data.parent.mkdir(parents=True, exist_ok=True)
        if self.prefix:
            shutil.chown(data.parent, _OWNER, _OWNER)
        if subprocess.run([*self.prefix, "test", "-r", data.parent], check=False).returncode:
            raise ClusterError(
                f"folder {data.parent}", f"one that user {_OWNER} may enter", "one below a closed folder",
                "set SKEWLESS_CLUSTER_HOME to a folder elsewhere, such as one in /var/tmp",
            )  # fmt: skip
        if (data / "PG_VERSION").exists():
            return
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
        # In a draft, so that what an interrupted start leaves is not taken for a database.
        draft = data.with_name(f"{data.name}.draft")
        self._run(["rm", "-rf", str(draft)])
        self._run([
            str(self.binaries / "initdb"), "-D", str(draft), "-U", owner, "--pwfile", str(password),
            "-A", "scram-sha-256", "-E", "UTF8", "--locale", "C.UTF-8", "--no-sync",
        ])  # fmt: skip
        single = [str(self.binaries / "postgres"), "--single", "-D", str(draft), "postgres"]
        self._run(single, said=f'CREATE DATABASE "{name}"\n')
        self._run(["mv", str(draft), str(data)])

    def _run(self, command: list[str], said: str = "") -> None:
        done = subprocess.run(  # our own words
            [*self.prefix, *command], input=said, capture_output=True, text=True, check=False, cwd="/"
        )
        if done.returncode:
            raise ClusterError(
                f"PostgreSQL's {Path(command[0]).name}", "a database", " ".join(done.stderr.split()) or "no message"
            )


def find_postgres() -> Postgres:
    """The PostgreSQL of this machine; a ``ClusterError`` if there is none, or no user that it could run as."""
    on_path = shutil.which("initdb")
    found = _DEBIAN if (_DEBIAN / "initdb").exists() else Path(on_path).parent if on_path else None
    if found is None:
        raise ClusterError(
            "cluster", f"PostgreSQL {RELEASE}", f"neither {_DEBIAN} nor initdb on the PATH",
            f"install it (Debian: apt-get install postgresql-{RELEASE}); its service need not run",
        )  # fmt: skip
    if os.geteuid() != 0:
        return Postgres(found, ())
    try:
        pwd.getpwnam(_OWNER)
    except KeyError:
        raise ClusterError(
            "cluster",
            f"a user {_OWNER}, because PostgreSQL refuses to run as root",
            "none",
            "create that user, or run this as another user than root",
        ) from None
    return Postgres(found, ("setpriv", f"--reuid={_OWNER}", f"--regid={_OWNER}", "--init-groups"))


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
