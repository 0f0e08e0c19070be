"""A worker's heartbeat: a thread that writes the worker's presence as long as its process runs.

It stops beating while the process is stopped, since a stopped worker does not work, and when the process has ended.
What holds Python's lock for longer than the maximum lease time costs the lease: set that to outlast it.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time

from skewless_leases.lease_errors import LeaseError, StoreError
from skewless_leases.stores import open_store
from skewless_leases.stores.lease_tables import WORKERS, Presence, decode, encode
from skewless_leases.stores.store import KeyValueStore

log = logging.getLogger(__name__)

#: How long a call may wait for an answer. It may wait three times: for the answer, for a new connection, and for
#: another one or the answer on it. That is six beats in all, of the ten in a maximum lease time.
ANSWER_BEATS = 2
#: How long a heartbeat may take for its last beat.
END_SECONDS = 15.0


class Beat:
    """Writes a worker's presence; nobody else writes it, so that a beat is one call as a rule."""

    def __init__(self, store: KeyValueStore, worker: str, room: int) -> None:
        self.store, self.key, self.room = store, WORKERS + worker, room
        self._beat = 0
        self._version: str | None = None

    def once(self, *, gone: bool = False) -> bool:
        """Beat; with ``gone`` for the last time.

        Returns:
            False if somebody had removed or changed the record; the next call writes over what is there now.
        """
        self._beat += 1
        presence = Presence(self._beat, 0 if gone else self.room, gone=gone)
        version = self.store.put(self.key, encode(presence), self._version)
        if version is None:
            row = self.store.get(self.key)
            self._version = row.version if row else None
            if row:
                # A number that comes again is no beat.
                with contextlib.suppress(LeaseError):
                    self._beat = max(self._beat, decode(Presence, row.value, self.key).beat)
            return False
        self._version = version
        return True


class Heartbeat:
    """The heartbeat of this process, under a worker's name: a beat ``every`` so many seconds.

    Raises:
        StoreError: the store cannot be opened.
    """

    def __init__(self, address: str, worker: str, room: int, every: float) -> None:
        self.worker, self.every = worker, every
        self._beat = Beat(open_store(address, durable=False, answer_seconds=ANSWER_BEATS * every), worker, room)
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """Beat once, and from now on.

        Raises:
            LeaseError: the store will never take this worker's record.
        """
        try:
            self._beat.once()
        except StoreError as err:  # it may be reached at the next beat
            log.warning("heartbeat of %s: %s", self.worker, err)
        self._thread = threading.Thread(target=self._run, name=f"heartbeat of {self.worker}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Say that the worker has ended, if it has begun."""
        self._over.set()
        if self._thread:
            self._thread.join(END_SECONDS)

    def _run(self) -> None:
        due = time.monotonic() + self.every
        while not self._over.wait(max(due - time.monotonic(), 0.0)):
            due = max(due + self.every, time.monotonic())
            self._try()
        for _ in range(3):
            if self._try(gone=True):
                break

    def _try(self, *, gone: bool = False) -> bool:
        try:
            return self._beat.once(gone=gone)
        except LeaseError as err:  # the store may be reached at the next beat
            log.warning("heartbeat of %s: %s", self.worker, err)
            return False
