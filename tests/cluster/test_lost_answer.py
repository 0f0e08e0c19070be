"""A catalog whose answer to a commit is lost: PostgreSQL behind a wire that is cut just then."""

import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from sqlalchemy.engine import make_url

from skewless.errors import UnreachableError
from skewless_lake.catalogs import open_catalog
from skewless_lake.publication import publish_run, roll_back
from tests.lake.outputs import NOW, part_of, publish, ready, seen
from tests.lake.postgres import postgres

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

KIND = "postgresql"


class Wire:
    """Passes bytes between clients and a server, and can cut a connection at the commit of a changed table.

    Attributes:
        armed: ``answer`` passes the next such commit on and cuts before its answer; ``commit`` cuts before it.
    """

    def __init__(self, server: tuple[str, int]) -> None:
        self.armed = ""
        self.cuts = 0
        self._server = server
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._server)
                mute = threading.Event()
                threading.Thread(target=self._forth, args=(client, server, mute), daemon=True).start()
                threading.Thread(target=self._back, args=(client, server, mute), daemon=True).start()

    def _forth(self, client: socket.socket, server: socket.socket, mute: threading.Event) -> None:
        changed = False
        with suppress(OSError):
            while data := client.recv(1 << 16):
                changed = changed or re.search(rb"UPDATE iceberg_tables", data) is not None
                if self.armed and changed and b"COMMIT" in data:
                    how, self.armed = self.armed, ""
                    self.cuts += 1
                    mute.set()
                    if how == "commit":
                        server.shutdown(socket.SHUT_RDWR)  # the other thread sees its end, and ends the client
                        return
                server.sendall(data)
        if not mute.is_set():
            server.close()

    @staticmethod
    def _back(client: socket.socket, server: socket.socket, mute: threading.Event) -> None:
        with suppress(OSError):
            while data := server.recv(1 << 16):
                if mute.is_set():
                    break
                client.sendall(data)
        for end in (client, server):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def close(self) -> None:
        self._listener.close()


@contextmanager
def wired(monkeypatch: pytest.MonkeyPatch, root: Path) -> Iterator[Wire]:
    with postgres() as address:
        url = make_url(address)
        wire = Wire((str(url.host), int(url.port or 0)))
        monkeypatch.setenv("PYICEBERG_CATALOG__SHARED__URI", url.set(port=wire.port).render_as_string(False))
        monkeypatch.setenv("PYICEBERG_CATALOG__SHARED__WAREHOUSE", str(root / "warehouse"))
        try:
            yield wire
        finally:
            open_catalog("shared", str(root)).close()
            wire.close()


def test_a_rollback_whose_answer_is_lost_goes_back_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with wired(monkeypatch, tmp_path) as wire:
        for turn, text in enumerate(["old", "new"], start=1):
            publish(tmp_path / f"{turn}", tmp_path, KIND, text, turn=turn)
        wire.armed = "answer"
        about = roll_back(part_of(KIND, tmp_path), NOW)
        assert wire.cuts == 1
        assert about["run"] == str(tmp_path / "1")
        assert seen(KIND, tmp_path) == {"2026-11-20": ["old"] * 3}


def test_a_rollback_that_was_not_committed_is_a_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with wired(monkeypatch, tmp_path) as wire:
        for turn, text in enumerate(["old", "new"], start=1):
            publish(tmp_path / f"{turn}", tmp_path, KIND, text, turn=turn)
        wire.armed = "commit"
        with pytest.raises(UnreachableError, match=r"its store or its catalog cannot be read or written \(.*\); mend"):
            roll_back(part_of(KIND, tmp_path), NOW)
        assert wire.cuts == 1
        assert seen(KIND, tmp_path) == {"2026-11-20": ["new"] * 3}
        roll_back(part_of(KIND, tmp_path), NOW)
        assert seen(KIND, tmp_path) == {"2026-11-20": ["old"] * 3}


def test_a_publication_whose_answer_is_lost_publishes_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with wired(monkeypatch, tmp_path) as wire:
        publish(tmp_path / "1", tmp_path, KIND, "old", turn=1)
        run = ready(tmp_path / "2", tmp_path, KIND, "new", turn=2)
        wire.armed = "answer"
        with pytest.raises(UnreachableError):
            publish_run(run, NOW)
        assert wire.cuts == 1
        assert seen(KIND, tmp_path) == {"2026-11-20": ["new"] * 3}
        assert publish_run(run, NOW).superseded is None
        roll_back(part_of(KIND, tmp_path), NOW)
        assert seen(KIND, tmp_path) == {"2026-11-20": ["old"] * 3}
