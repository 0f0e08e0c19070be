"""Real back ends: a folder each, and a Redis server of our own on a socket that nobody else knows."""

from __future__ import annotations

import contextlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.object_stores import BUCKET, ObjectServer, as_client, object_server
from tests.tiers import mostly_long


@contextlib.contextmanager
def redis_server(below: str | None = None) -> Iterator[tuple[Path, int]]:
    """A Redis server that keeps what it acknowledges; without TCP, so that it needs neither port nor password.

    Its socket is in a folder of its own among the temporary ones, or ``below`` another one.
    """
    server = shutil.which("redis-server")
    if server is None:
        pytest.fail("redis-server is missing: make setup-tests installs it, or apt-get install redis-server")
    # The path of a socket may be 107 bytes long; pytest's folders are longer.
    folder = Path(tempfile.mkdtemp(prefix="leases-", dir=below))
    address = folder / "redis.sock"
    arguments = ["--port", "0", "--unixsocket", str(address), "--dir", str(folder), "--save", "", "--appendonly", "yes"]
    log = folder / "redis.log"
    with log.open("wb") as out:
        process = subprocess.Popen([server, *arguments], stdout=out, stderr=out)
    try:
        deadline = time.monotonic() + 30
        while not _accepts(address):
            assert process.poll() is None, log.read_text(encoding="utf-8")
            assert time.monotonic() < deadline, log.read_text(encoding="utf-8")
            time.sleep(0.01)
        yield address, process.pid
    finally:
        process.send_signal(signal.SIGCONT)
        process.terminate()
        process.wait(10)
        shutil.rmtree(folder)


def _accepts(address: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(str(address)) == 0


@pytest.fixture(scope="session")
def redis_socket() -> Iterator[Path]:
    with redis_server() as (address, _):
        yield address


@pytest.fixture
def own_redis() -> Iterator[tuple[Path, int]]:
    """One that a test may stop; its socket and its process."""
    with redis_server() as server:
        yield server


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectServer]:
    with object_server("localbucket", tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def bucket(s3_server: ObjectServer) -> Iterator[str]:
    with as_client(s3_server.environment):
        yield f"s3://{BUCKET}"


@pytest.fixture(params=mostly_long(["folder", "redis", "bucket"], "folder"))
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "folder":
        return str(tmp_path / "leases")
    if request.param == "bucket":
        return f"{request.getfixturevalue('bucket')}/{tmp_path.name}"
    address = request.getfixturevalue("redis_socket")
    return f"unix://{address}#{tmp_path.name}"
