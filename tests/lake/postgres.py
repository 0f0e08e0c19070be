"""A PostgreSQL server of a test, as the catalog of Iceberg tables."""

import os
import secrets
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg

from tests.cluster.database import find_postgres
from tests.processes import free_port, until

_SECONDS = 60


@contextmanager
def postgres() -> Iterator[str]:
    password, port = secrets.token_hex(16), free_port()
    home = Path(tempfile.mkdtemp(dir="/var/tmp"))  # its user may not enter the folders of tests
    environment = {
        "PGDATA": str(home / "data"), "POSTGRES_PASSWORD": password, "POSTGRES_USER": "lake", "POSTGRES_DB": "lake",
    }  # fmt: skip
    found = find_postgres()
    found.prepare(environment)
    settings = ["-c", "listen_addresses=127.0.0.1", "-c", f"unix_socket_directories={home / 'data'}"]
    server = subprocess.Popen(
        [*found.prefix, str(found.binaries / "postgres"), "-D", str(home / "data"), "-p", str(port), *settings],
        env={**os.environ, **environment}, cwd="/", stderr=subprocess.DEVNULL,
    )  # fmt: skip
    address = f"127.0.0.1:{port}/lake"
    try:
        until(lambda: _answers(f"postgresql://lake:{password}@{address}"), "PostgreSQL", _SECONDS)
        yield f"postgresql+psycopg://lake:{password}@{address}"
    finally:
        server.send_signal(signal.SIGINT)  # which does not wait for clients to go
        server.wait(30)
        shutil.rmtree(home, ignore_errors=True)


def _answers(address: str) -> bool:
    with suppress(psycopg.OperationalError):
        psycopg.connect(address).close()
        return True
    return False
