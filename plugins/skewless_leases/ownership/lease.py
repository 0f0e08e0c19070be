"""A lease on one partition for one piece of work: whoever comes later waits until the holder is done, or dead.

A turn is a fencing number without a lease. It is drawn once, before the work, and kept. Whoever is about to make
its work visible *claims* its turn, which is refused once a later one is claimed; whoever has done so *finishes*
it. So an old attempt that is started again finds its old turn, and undoes nothing.

One counter gives the turns of a store; what is claimed and finished is kept by name.
"""

from __future__ import annotations

import logging
import secrets
import time
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self

from skewless_leases.lease_errors import LeaseError, StoreError
from skewless_leases.liveness.heartbeat import Heartbeat
from skewless_leases.liveness.spans import Silences, TimeSpans
from skewless_leases.ownership import fence
from skewless_leases.ownership.fence import Grant
from skewless_leases.stores import open_store
from skewless_leases.stores.lease_tables import WORKERS, Look, encode, look_at, parsed
from skewless_leases.stores.store import KeyValueStore

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


DRAWN, NAMES = "turns-drawn", "turns/"
#: Numbers are stored as text; more digits are nobody's.
_MOST_DIGITS = 18


@dataclass(frozen=True)
class Standing:
    """Who has claimed and finished the latest turns of a name; 0 and an empty text mean nobody.

    Attributes:
        claimed: the highest turn whose work may become visible.
        claimant: who claimed it.
        finished: the highest turn whose work is done; at most ``claimed``.
        finisher: who finished it.
    """

    claimed: int = 0
    claimant: str = ""
    finished: int = 0
    finisher: str = ""


class Turns:
    """The turns of some names, in a store. Turns begin at 1; 0 means none."""

    def __init__(self, store: KeyValueStore) -> None:
        self.store = store

    def draw(self, above: int = 0) -> int:
        """The next turn. No two callers get the same one; a turn that is drawn and never used does no harm.

        Args:
            above: a turn that is known to have been drawn; the next one is above it even if the store was lost since.
        """
        while True:
            row = self.store.get(DRAWN)
            drawn = max(_number(row.value), above) + 1 if row else above + 1
            if self.store.put(DRAWN, b"%d" % drawn, row.version if row else None) is not None:
                return drawn

    def look(self, name: str) -> Standing:
        """How far the turns of a name are just now."""
        return self._read(name)[0]

    def claim(self, name: str, turn: int, who: str) -> Standing:
        """Claim a turn, unless that one or a later one is claimed.

        Returns:
            How things stand then. The turn is claimed only if it is named there, together with ``who``.
        """
        while True:
            before, version = self._read(name)
            if before.claimed >= turn:
                return before
            after = replace(before, claimed=turn, claimant=who)
            if self._write(name, after, version):
                return after

    def finish(self, name: str, turn: int, who: str) -> Standing:
        """Say that a turn's work is done, unless that of a later one is. Finishing twice is no harm.

        Returns:
            How things stand then. The turn's work counts only if it is named there as finished, with ``who``.
        """
        while True:
            before, version = self._read(name)
            if before.finished >= turn:
                return before
            after = replace(before, finished=turn, finisher=who)
            if after.claimed < turn:  # the store was lost since the turn was claimed
                after = replace(after, claimed=turn, claimant=who)
            if self._write(name, after, version):
                return after

    def _read(self, name: str) -> tuple[Standing, str | None]:
        row = self.store.get(NAMES + name)
        return (_standing(row.value, name), row.version) if row else (Standing(), None)

    def _write(self, name: str, standing: Standing, version: str | None) -> bool:
        return self.store.put(NAMES + name, encode(standing), version) is not None


def _number(value: bytes) -> int:
    if not value.isdigit() or len(value) > _MOST_DIGITS:
        hint = "it was edited by hand, or torn: remove it, and the next turn is drawn above the published ones"
        raise LeaseError("turns that were drawn", "a number", repr(value[:120]), hint)
    return int(value)


def _standing(value: bytes, name: str) -> Standing:
    found = parsed(Standing, value)
    if found is not None and found.finished <= found.claimed:
        return found
    hint = "it was edited by hand, or torn: remove it, and the turn of the published folder counts"
    raise LeaseError(f"turns of {name}", "two numbers and two names", repr(value[:120]), hint)
