"""A catalog of Iceberg's REST protocol, by Iceberg's own Java code: its handlers of requests, and a catalog in memory.

Only HTTP is ours: a route for each handler, and the status that the protocol has for each of Iceberg's exceptions.
``python -m tests.lake.rest_catalog WAREHOUSE`` serves one, with its tables in a folder, until its standard input ends.
"""

import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from py4j.protocol import Py4JJavaError

from tests.lake.java_reader import jar
from tests.lake.java_server import java, port_of

#: What the protocol answers, by the names of Iceberg's exceptions; all others are 500.
STATUS = {
    "IllegalArgumentException": 400, "ValidationException": 400, "NamespaceNotEmptyException": 400,
    "NoSuchNamespaceException": 404, "NoSuchTableException": 404, "AlreadyExistsException": 409,
    "CommitFailedException": 409, "UnprocessableEntityException": 422,
}  # fmt: skip


class Handlers:
    def __init__(self, warehouse: Path) -> None:
        classes = java(jar())
        self._java, self._iceberg = classes, classes.org.apache.iceberg
        self._of = self._iceberg.rest.CatalogHandlers
        self._catalog = self._iceberg.inmemory.InMemoryCatalog()
        files = "org.apache.iceberg.hadoop.HadoopFileIO"
        self._catalog.initialize("rest", {"warehouse": f"file://{warehouse}", "io-impl": files})
        json_of = classes.org.apache.iceberg.shaded.com.fasterxml.jackson
        self._mapper = json_of.databind.ObjectMapper()
        self._mapper.setVisibility(
            json_of.annotation.PropertyAccessor.FIELD, json_of.annotation.JsonAutoDetect.Visibility.ANY
        )
        self._mapper.configure(json_of.databind.DeserializationFeature.FAIL_ON_UNKNOWN_PROPERTIES, False)
        self._mapper.setPropertyNamingStrategy(json_of.databind.PropertyNamingStrategies.KebabCaseStrategy())
        self._iceberg.rest.RESTSerializers.registerAll(self._mapper)

    def answer(self, method: str, path: str, body: str) -> tuple[int, str]:
        try:
            found = self._found(method, [unquote(one) for one in path.strip("/").split("/")[1:]], body)
        except Py4JJavaError as err:
            name, message = err.java_exception.getClass().getSimpleName(), err.java_exception.getMessage()
            status = STATUS.get(name, 500)
            return status, json.dumps({"error": {"message": message, "type": name, "code": status}})
        return (204, "") if found is None else (200, self._mapper.writeValueAsString(found))

    def _found(self, method: str, names: list[str], body: str) -> Any:
        """The answer of the handler of a route; None if it has none."""
        of = self._of
        match [method.replace("HEAD", "GET"), *names]:
            case ["GET", "config"]:
                found: Any = {"defaults": {}, "overrides": {}}
            case ["POST", "namespaces"]:
                found = of.createNamespace(self._catalog, self._read("CreateNamespaceRequest", body))
            case ["GET", "namespaces", space]:
                found = of.loadNamespace(self._catalog, self._space(space))
            case ["POST", "namespaces", space, "tables"]:
                found = of.createTable(self._catalog, self._space(space), self._read("CreateTableRequest", body))
            case ["GET", "namespaces", space, "tables", table]:
                found = of.loadTable(self._catalog, self._table(space, table))
            case ["POST", "namespaces", space, "tables", table]:
                found = of.updateTable(self._catalog, self._table(space, table), self._read("UpdateTableRequest", body))
            case ["DELETE", "namespaces", space, "tables", table]:
                found = of.dropTable(self._catalog, self._table(space, table))
            case route:
                raise AssertionError(f"no handler for {route}")
        return found

    def _read(self, kind: str, body: str) -> Any:
        wanted = self._java.java.lang.Class.forName(f"org.apache.iceberg.rest.requests.{kind}")
        return self._mapper.readValue(body, wanted)

    def _space(self, name: str) -> Any:
        return self._iceberg.rest.RESTUtil.decodeNamespace(name)

    def _table(self, space: str, name: str) -> Any:
        return self._iceberg.catalog.TableIdentifier.of(self._space(space), name)


def serve(warehouse: Path) -> None:
    """Print the port, and serve until standard input ends."""
    handlers = Handlers(warehouse)

    class Requests(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
            status, document = handlers.answer(self.command, urlsplit(self.path).path, body)
            content = document.encode() if self.command != "HEAD" else b""
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_HEAD = do_POST = do_DELETE = do_GET  # noqa: N815  # as http.server names them

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Requests)
    sys.stdout.write(f"{server.server_port}\n")
    sys.stdout.flush()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.read()


@contextmanager
def rest_catalog(folder: Path) -> Iterator[str]:
    with port_of("tests.lake.rest_catalog", folder) as port:
        yield f"http://127.0.0.1:{port}"


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
