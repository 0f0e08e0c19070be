"""A lease on one partition for one piece of work: whoever comes later waits until the holder is done, or dead."""

from __future__ import annotations

import logging
import secrets
import time
from types import TracebackType
from typing import Self

from skewless_leases.errors import LeaseError, StoreError
from skewless_leases.liveness.heartbeat import Heartbeat
from skewless_leases.liveness.spans import Silences, TimeSpans
from skewless_leases.ownership import fence
from skewless_leases.ownership.fence import Grant
from skewless_leases.stores import open_store
from skewless_leases.stores.tables import WORKERS, Look, look_at

log = logging.getLogger(__name__)

#: A waiting worker's looks within one maximum lease time, each of them at all rows of the store.
_LOOKS_PER_LEASE = 40


class Lease:
    """Held while it is entered: ``with Lease(...) as lease:``.

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
        """The grant, with its fencing number.

        Raises:
            LeaseError: the lease has not been entered.
        """
        if self._grant is None:
            raise LeaseError.saying(f"lease of {self.partition}", "it is not held", "enter it first")
        return self._grant

    def committed(self) -> str | None:
        """What was last committed, by this holder or one before."""
        return fence.read(self.store, self.partition).value

    def commit(self, value: str) -> None:
        """Write under this lease: see ``skewless_leases.ownership.fence.commit``."""
        fence.commit(self.store, self.grant, value)

    def _await_grant(self) -> Grant:
        silences, waited_for = Silences(), None
        while True:
            look = self._look()
            silences = silences.after(look, self.spans.beat_every)
            holder = look.holder(self.partition)
            if holder is None or holder in silences.dead(look, self.spans.maximum_lease):
                if grant := fence.take(self.store, self.partition, self.name, look.allocations.get(self.partition)):
                    self._forget(holder, look)
                    return grant
                continue  # somebody was faster: look who
            if holder != waited_for:
                log.warning(
                    "%s is held by %s under fencing number %d: waiting until that has ended, or was silent for %.0f s",
                    self.partition, holder, look.fence(self.partition), self.spans.maximum_lease,
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
