"""A stand-in for Livy's batches that really runs ``spark-submit``, on this machine.

It answers as Livy 0.8 does where the provider asks: a second batch of a name that it remembers is refused, logs come in
pages. It is not Livy: who asks is not checked, and nothing is kept.
"""

import contextlib
import http.server
import json
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

#: What its REST API takes of a batch.
FIELDS = {
    "file", "proxyUser", "className", "args", "jars", "pyFiles", "files", "driverMemory", "driverCores",
    "executorMemory", "executorCores", "numExecutors", "archives", "queue", "name", "conf",
}  # fmt: skip
SPARK = ("spark-submit", "--master", "local[2]")
_HELD = 'while [ -e "$0" ]; do sleep 0.05; done; exec "$@"'


@dataclass
class Batch:
    """A batch that was posted; its driver leads a session of its own."""

    number: int
    body: Mapping[str, Any]
    process: subprocess.Popen[bytes]
    log: Path
    followed: bool = False
    deleted: bool = False

    @property
    def name(self) -> str:
        return str(self.body["name"])

    @property
    def state(self) -> str:
        code = self.process.poll()
        return "running" if code is None else "success" if code == 0 else "dead"

    def shown(self) -> dict[str, Any]:
        return {"id": self.number, "name": self.name, "state": self.state, "appId": f"app-{self.number}", "log": []}


@dataclass
class Livy:
    """The stand-in.

    Attributes:
        program: what runs an entry.
    """

    folder: Path
    program: Sequence[str] = SPARK
    submit = {"runner": "livy", "polling_interval": 1}  # noqa: RUF012
    address: str = ""
    batches: list[Batch] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def connection(self) -> str:
        url = urlsplit(self.address)
        return json.dumps({"conn_type": "livy", "schema": "http", "host": url.hostname, "port": url.port})

    def variables(self, address: str, _folder: Path) -> dict[str, str]:
        self.address = address
        return {"AIRFLOW_CONN_LIVY_DEFAULT": self.connection}

    @property
    def names(self) -> list[str]:
        return [batch.name for batch in self.batches]

    def hold(self) -> None:
        (self.folder / "hold").touch()

    def release(self) -> None:
        (self.folder / "hold").unlink(missing_ok=True)

    def answer(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        url = urlsplit(path)
        if method == "POST":
            return self._post(body)
        if method == "DELETE":
            batch = self.batches[int(url.path.removeprefix("/batches/"))]
            os.killpg(batch.process.pid, signal.SIGKILL)
            batch.deleted = True
            return 200, {"msg": "deleted"}
        assert method == "GET", method
        query = parse_qs(url.query)
        start, size = int(query.get("from", ["0"])[0]), int(query.get("size", ["100"])[0])
        if url.path == "/batches":
            listed = [batch.shown() for batch in self.batches if not batch.deleted]
            return 200, {"from": start, "total": len(listed), "sessions": listed[start : start + size]}
        number, *part = url.path.removeprefix("/batches/").split("/")
        batch = self.batches[int(number)]
        batch.followed |= part == ["state"]
        if part == ["log"]:
            lines = batch.log.read_text(errors="replace").splitlines()
            return 200, {"id": batch.number, "from": start, "total": len(lines), "log": lines[start : start + size]}
        return 200, batch.shown()

    def _post(self, body: Mapping[str, Any]) -> tuple[int, Any]:
        assert not set(body) - FIELDS, f"Livy has no {set(body) - FIELDS}"
        with self.lock:
            if any(batch.name == body["name"] and not batch.deleted for batch in self.batches):
                return 400, {"msg": f"Duplicate session name: Some({body['name']}) for session"}
            words = ["--name", body["name"], "--driver-memory", body.get("driverMemory", "1g")]
            words += [word for name, value in body["conf"].items() for word in ("--conf", f"{name}={value}")]
            command = ["sh", "-c", _HELD, str(self.folder / "hold"), *self.program, *words, body["file"], *body["args"]]
            log = self.folder / f"{len(self.batches)}.log"
            with log.open("wb") as out:
                process = subprocess.Popen(
                    command, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
                )
            self.batches.append(Batch(len(self.batches), body, process, log))
            return 201, self.batches[-1].shown()


#: Method, path with query, and body of a request give status and body of the answer.
Answer = Callable[[str, str, Any], tuple[int, Any]]


@contextlib.contextmanager
def json_server(answer: Answer) -> Iterator[str]:
    """The address of a server that answers as a function says."""

    class Api(http.server.BaseHTTPRequestHandler):
        def __getattr__(self, name: str) -> Callable[[], None]:
            if name.startswith("do_"):
                return self._answer
            raise AttributeError(name)

        def _answer(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            status, body = answer(self.command, self.path, json.loads(self.rfile.read(length) or "null"))
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Api) as server:
        threading.Thread(target=server.serve_forever, args=[0.05], daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


@contextlib.contextmanager
def stand_in_livy(folder: Path, program: Sequence[str] = SPARK) -> Iterator[Livy]:
    folder.mkdir(parents=True, exist_ok=True)
    livy = Livy(folder, program)
    with json_server(livy.answer) as livy.address:
        try:
            yield livy
        finally:
            for batch in livy.batches:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(batch.process.pid, signal.SIGKILL)
                batch.process.wait()
