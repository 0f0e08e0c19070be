"""A lease on one partition for one piece of work, and the heartbeat of whoever holds leases.

The heartbeat is a thread that writes the worker's presence as long as its process runs.
"""

import logging
import secrets
import threading
import time
from types import TracebackType
from typing import Self

from skewless_leases import fence
from skewless_leases.fence import Grant
from skewless_leases.file_store import open_store
from skewless_leases.lease_tables import WORKERS, Look, Presence, Silences, TimeSpans, encode, look_at
from skewless_leases.store import KeyValueStore, LeaseError, StoreError

log = logging.getLogger(__name__)

#: A waiting worker's looks within one maximum lease time, each of them at all rows of the store.
_LOOKS_PER_LEASE = 40
#: How long a call may wait for an answer. It may wait three times: for the answer, for a new connection, and for
#: another one or the answer on it. That is six beats in all, of the ten in a maximum lease time.
ANSWER_BEATS = 2
#: How long a heartbeat may take for its last beat.
END_SECONDS = 15.0


class Beat:
    """Writes a worker's presence; nobody else writes it, so that a beat is one call as a rule."""

    def __init__(self, store: KeyValueStore, worker: str, room: int) -> None:
        self.store, self.key, self.room = store, WORKERS + worker, room
        self._version: str | None = None

    def once(self, *, gone: bool = False) -> bool:
        """Beat; with ``gone`` for the last time.

        Returns:
            False if somebody had removed or changed the record; the next call writes over what is there now.
        """
        version = self.store.put(self.key, encode(Presence(0 if gone else self.room, gone)), self._version)
        if version is None:
            row = self.store.get(self.key)
            self._version = row.version if row else None
            return False
        self._version = version
        return True


class Heartbeat:
    """The heartbeat of this process, under a worker's name: a beat ``every`` so many seconds.

    It stops beating while the process is stopped, since a stopped worker does not work, and when the process has ended.
    What holds Python's lock for longer than the maximum lease time costs the lease: set that to outlast it.

    Raises:
        StoreError: the store cannot be opened.
    """

    def __init__(self, address: str, worker: str, room: int, every: float) -> None:
        self.worker, self.every = worker, every
        self._beat = Beat(open_store(address, durable=False, answer_seconds=ANSWER_BEATS * every), worker, room)
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """Beat once, and from now on."""
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


class Lease:
    """Held while it is entered, ``with Lease(...) as lease:``; whoever comes later waits until it is done, or dead.

    There is no balance to keep here, and so no challenge: a holder is left in peace as long as its heartbeat
    beats, and its partition is taken, under a higher fencing number, when it has ended or was silent for the
    maximum lease time. One that wakes after that writes nothing.

    Args:
        address: of the store, as ``open_store`` takes it.
        partition: what is to be held by one at a time.
        name: a name for people, for whoever waits; each lease gets one of its own from it.
        spans: the time spans; only the maximum lease time matters here.

    Raises:
        LeaseError: from entering: the store does not take its record, or a record is damaged.
        StoreError: from entering: the store cannot be reached.
    """

    def __init__(self, address: str, partition: str, name: str, spans: TimeSpans) -> None:
        self.partition, self.name = partition, f"{name}-{secrets.token_hex(4)}"
        self.store, self.spans = open_store(address), spans
        self._heartbeat = Heartbeat(address, self.name, 1, spans.beat_every)
        self._look_every = spans.maximum_lease / _LOOKS_PER_LEASE
        self._grant: Grant | None = None
        #: What is to be committed when the lease is given back, in the same write; None for nothing.
        self.last_value: str | None = None

    def __enter__(self) -> Self:
        """Begin to beat, and wait for the partition."""
        self._heartbeat.begin()
        try:
            self._grant = self._await_grant()
        except BaseException:
            self._leave()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give it back; what was committed stays."""
        try:
            fence.release(self.store, self.grant, self.last_value)
        except LeaseError as err:  # the work is done or has failed by now: its own outcome is what matters
            log.warning("%s could not give back %s: %s", self.name, self.partition, err)
        self._leave()

    @property
    def grant(self) -> Grant:
        """The grant, with its fencing number; a ``LeaseError`` if the lease has not been entered."""
        if self._grant is None:
            raise LeaseError.saying(f"lease of {self.partition}", "it is not held", "enter it first")
        return self._grant

    def _await_grant(self) -> Grant:
        silences, waited_for = Silences(), None
        while True:
            look = self._look()
            silences = silences.after(look, self.spans.beat_every)
            held = look.of(self.partition)
            holder = held.holder
            if holder is None or holder in silences.dead(look, self.spans.maximum_lease):
                if grant := fence.take(self.store, self.partition, self.name, look.allocations.get(self.partition)):
                    self._forget(holder, look)
                    return grant
                continue  # somebody was faster: look who
            if holder != waited_for:
                log.warning(
                    "%s is held by %s under fencing number %d: waiting until that has ended, or was silent for %.0f s",
                    self.partition, holder, held.fence, self.spans.maximum_lease,
                )  # fmt: skip
                waited_for = holder
            time.sleep(self._look_every)

    def _look(self) -> Look:
        """The tables; a store that does not answer now is asked again for as long as a holder may be silent."""
        began = time.monotonic()
        while True:
            try:
                return look_at(self.store, time.monotonic())
            except StoreError as err:
                if time.monotonic() - began > self.spans.maximum_lease:
                    raise
                log.warning("%s could not look at the tables, and tries again: %s", self.name, err)
                time.sleep(self._look_every)

    def _leave(self) -> None:
        self._heartbeat.stop()
        try:
            self._forget(self.name, look_at(self.store, 0.0))
        except LeaseError as err:
            log.warning("%s could not remove its record: %s", self.name, err)

    def _forget(self, worker: str | None, look: Look) -> None:
        """Remove the record of a worker that is no more; one that wakes makes it anew."""
        row = look.presences.get(worker) if worker else None
        if row:
            self.store.delete(f"{WORKERS}{worker}", row.version)
