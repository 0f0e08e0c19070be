"""S3 servers for tests, each a process of its own on loopback, and a place in one of them for a test.

moto and localbucket honour ``If-None-Match``; rclone does not, and is the server that must be refused. Of many writers
at once localbucket lets one win, as it links a file. It passes over ``If-Match``, and is refused where that is needed.
moto looks first and writes then; so here it answers one request at a time.
"""

import contextlib
import http.client
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import obstore
import pytest
from obstore.store import from_url

from tests.cluster.database import LOCALBUCKET
from tests.processes import free_port, until

#: Those that honour a conditional put.
KINDS = ("moto", "localbucket")
BUCKET = "lake"
_START_SECONDS = 60.0
_MOTO = """
import sys
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import run_simple
run_simple("127.0.0.1", int(sys.argv[1]), DomainDispatcherApplication(create_backend_app), threaded=False)
"""


@dataclass(frozen=True)
class ObjectServer:
    """A server with one bucket, ``lake``."""

    endpoint: str
    environment: Mapping[str, str]
    pid: int

    @property
    def port(self) -> int:
        return int(self.endpoint.rpartition(":")[2])

    def behind(self, port: int) -> dict[str, str]:
        """The variables of the environment for a client that reaches it through another port of this machine."""
        return {**self.environment, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}"}

    def catalog(self, name: str, database: Path) -> dict[str, str]:
        """The variables for tables in the bucket: pyiceberg's of a catalog in SQLite; deltalake may do without TLS."""
        catalog = f"PYICEBERG_CATALOG__{name.upper()}__"
        return {
            "AWS_ALLOW_HTTP": "true",
            f"{catalog}URI": f"sqlite:///{database}",
            f"{catalog}WAREHOUSE": f"s3://{BUCKET}/warehouse",
            f"{catalog}S3__ENDPOINT": self.endpoint,
            f"{catalog}S3__REGION": self.environment["AWS_REGION"],  # pyiceberg would ask Amazon for it
        }

    def keys(self, prefix: str = "") -> list[str]:
        return sorted(str(one["path"]) for page in obstore.list(self._bucket(), prefix or None) for one in page)

    def put(self, key: str, content: bytes) -> None:
        obstore.put(self._bucket(), key, content)

    def delete(self, key: str) -> None:
        obstore.delete(self._bucket(), key)

    def content(self, key: str) -> bytes:
        return obstore.get(self._bucket(), key).bytes().to_bytes()

    def _bucket(self) -> obstore.store.ObjectStore:
        config = {name.lower(): value for name, value in self.environment.items()}
        return from_url(f"s3://{BUCKET}", config=config, client_options={"allow_http": True})  # type: ignore[call-overload]


@contextlib.contextmanager
def object_server(kind: str, folder: Path) -> Iterator[ObjectServer]:
    """Start a server, wait until it answers, make the bucket; the process ends with the block."""
    folder.mkdir(parents=True, exist_ok=True)
    key, secret, port = secrets.token_hex(8), secrets.token_hex(16), free_port()
    programs = Path(sys.executable).parent
    data = folder / "data"
    data.mkdir()
    commands: dict[str, list[object]] = {
        "moto": [sys.executable, "-c", _MOTO, str(port)],
        "localbucket": [sys.executable, "-c", LOCALBUCKET, "--port", str(port), data],
        "rclone": [programs / "rclone", "serve", "s3", "--addr", f"127.0.0.1:{port}", data],
    }
    # The server's own environment: rclone takes its keys from there, and no key is in a list of processes.
    environment = {**os.environ, "RCLONE_AUTH_KEY": f'"{key},{secret}"', "RCLONE_CONFIG": os.devnull}
    log = folder / f"{kind}.log"
    with log.open("wb") as out:
        process = subprocess.Popen([str(one) for one in commands[kind]], stdout=out, stderr=out, env=environment)
    server = ObjectServer(
        f"http://127.0.0.1:{port}",
        {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
            "AWS_ACCESS_KEY_ID": key,
            "AWS_SECRET_ACCESS_KEY": secret,
            "AWS_REGION": "us-east-1",
        },
        process.pid,
    )
    try:
        _await_answer(process, port, log)
        if kind == "rclone":
            (data / BUCKET).mkdir()
        else:
            _make_bucket(port)
        yield server
    finally:
        process.kill()
        process.wait(10)


def _await_answer(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    def answers() -> bool:
        assert process.poll() is None, log.read_text(encoding="utf-8")
        client = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        with contextlib.suppress(OSError, http.client.HTTPException), contextlib.closing(client):
            client.request("GET", "/")
            return bool(client.getresponse())
        return False

    until(answers, lambda: log.read_text(encoding="utf-8"), _START_SECONDS)


def _make_bucket(port: int) -> None:
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=10)) as client:
        client.request("PUT", f"/{BUCKET}")
        assert client.getresponse().status == http.client.OK


@contextlib.contextmanager
def as_client(environment: Mapping[str, str]) -> Iterator[None]:
    """The variables of the environment by which this process and its children reach a server, for a while."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            patch.delenv(name)
        for name, value in environment.items():
            patch.setenv(name, value)
        yield
