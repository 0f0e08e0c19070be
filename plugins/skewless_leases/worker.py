"""A worker among others: what it decides it enacts, and with real time its heartbeat and its looks are threads."""

import logging
import secrets
import threading
import time
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType, TracebackType
from typing import Protocol, Self

from skewless_leases.decisions import Action, Challenge, ClearGrab, Memory, Surrender, Take, decide
from skewless_leases.fence import Grant, release, take
from skewless_leases.file_store import open_store
from skewless_leases.lease import Heartbeat
from skewless_leases.lease_tables import GRAB, Grab, Look, TimeSpans, encode, look_at
from skewless_leases.store import FencedOutError, KeyValueStore, LeaseError, StoreError

log = logging.getLogger(__name__)


class Work(Protocol):
    """What a worker does with the partitions it holds. None of the calls should take long."""

    def granted(self, grant: Grant) -> None:
        """The partition is this worker's: begin."""

    def asked_back(self, grant: Grant) -> bool:
        """Somebody who has less asks for it: stop in good order.

        Called at every look until it returns True, which says that it is stopped; after the maximum
        shutdown time the partition is taken by force. It may be called once more after that, if the
        store was not reached.
        """

    def lost(self, grant: Grant) -> None:
        """It is somebody else's already: stop at once; nothing can be committed under this grant."""


class Member:
    """One worker's part of the algorithm, without threads and clocks: looks, decides, enacts.

    The time is an argument, so that a simulation and a test drive exactly what ``Worker`` runs.

    Args:
        name: this worker's; nobody else's, and not that of an earlier life either.
        partitions: all that are to be held now, given what was committed by partition; a mapping says what each
            weighs. It is asked at each look; what it leaves out is not taken, moved or counted any more.
        work: is told what is granted, asked back and lost.
    """

    def __init__(
        self,
        store: KeyValueStore,
        name: str,
        partitions: Callable[[Mapping[str, str]], Collection[str]],
        spans: TimeSpans,
        work: Work,
    ) -> None:
        self.store, self.name, self.partitions, self.spans, self.work = store, name, partitions, spans, work
        self.memory = Memory()
        self._grants: dict[str, Grant] = {}

    @property
    def grants(self) -> Mapping[str, Grant]:
        """What this worker held at its last look, by partition."""
        return MappingProxyType(self._grants.copy())

    def step(self, time: float) -> tuple[Action, ...]:
        """Look, decide and enact, at a time of the monotonic clock in seconds; what was decided, refused or not."""
        return self.act(look_at(self.store, time))

    def act(self, look: Look) -> tuple[Action, ...]:
        """Decide by a look, which may be out of date by now, and enact: the store refuses what is."""
        self._reconcile(look)
        actions, self.memory = decide(self.name, self.partitions(look.committed()), look, self.memory, self.spans)
        for action in actions:
            self._enact(action, look)
        return actions

    def leave(self) -> None:
        """Give back at once all that the store takes. The caller has stopped its work, and its heartbeat before."""
        for partition, grant in sorted(self._grants.items()):
            try:
                release(self.store, grant)
            except LeaseError as err:  # lost before, or not to be written: the next one may be
                log.warning("%s could not give back %s: %s", self.name, partition, err)
        self._grants.clear()

    def _reconcile(self, look: Look) -> None:
        """Take note of what was lost since the last look, and of what was granted without an answer."""
        for partition, grant in sorted(self._grants.items()):
            now = look.of(partition)
            if now.fence > grant.fence or (now.fence == grant.fence and now.holder != self.name):
                del self._grants[partition]
                log.warning("%s lost %s, fencing number %d", self.name, partition, grant.fence)
                self.work.lost(grant)
        for partition, row in look.allocations.items():
            if row.record.holder == self.name and partition not in self._grants:
                self._begin(Grant(partition, row.record.fence, self.name))

    def _enact(self, action: Action, look: Look) -> None:
        partition = action.partition
        if isinstance(action, Take):
            grant = take(self.store, partition, self.name, look.allocations.get(partition))
            outcome = f"done, fencing number {grant.fence}" if grant else "refused: somebody was faster"
        elif isinstance(action, Challenge):
            grab = Grab(self.name, look.of(partition).fence)
            made = self.store.put(GRAB + partition, encode(grab), None)
            outcome = "done" if made else "refused: somebody else has challenged it"
        elif isinstance(action, ClearGrab):
            cleared = self.store.delete(GRAB + partition, look.grabs[partition].version)
            outcome = "done" if cleared else "refused: it has changed"
        else:
            outcome = self._surrender(action)
        log.info("%s: %s: %s", self.name, action, outcome)
        if isinstance(action, Take) and grant:
            self._begin(grant)

    def _surrender(self, action: Surrender) -> str:
        grant = self._grants[action.partition]
        if not self.work.asked_back(grant):
            return "stopping"
        try:
            release(self.store, grant)
            outcome = "done"
        except FencedOutError as err:
            outcome = f"refused: {err}"
        del self._grants[action.partition]
        return outcome

    def _begin(self, grant: Grant) -> None:
        self._grants[grant.partition] = grant
        self.work.granted(grant)


class Worker:
    """Takes part while it is entered: ``with Worker(...) as worker:``.

    The thread that looks at the tables may be late by as much as the work lets it wait; then it takes
    and gives back later, and is asked in vain for no longer than the maximum shutdown time.

    Args:
        address: of the store, as ``open_store`` takes it.
        name: a name for people; each life of a worker gets a name of its own from it.
        room: how many partitions it can hold.
        partitions: all that are to be held now, given what was committed by partition; asked at each look. A mapping
            says what each weighs.
        spans: the five time spans, the same for all workers.
        work: is told what is granted, asked back and lost, in the thread that looks.
    """

    def __init__(
        self,
        address: str,
        name: str,
        *,
        room: int,
        partitions: Callable[[Mapping[str, str]], Collection[str]],
        spans: TimeSpans,
        work: Work,
    ) -> None:
        self.name = f"{name}-{secrets.token_hex(4)}"
        self.store, self.spans = open_store(address), spans
        self._member = Member(self.store, self.name, partitions, spans, work)
        self._heartbeat = Heartbeat(address, self.name, room, spans.beat_every)
        self._leaving, self._sooner = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"leases of {self.name}", daemon=True)
        self._failure: Exception | None = None

    def __enter__(self) -> Self:
        """Begin to beat, then to look."""
        self._heartbeat.begin()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give everything back. The caller has stopped its work."""
        self._leaving.set()
        self._sooner.set()
        self._thread.join()
        # In this order: nobody gives partitions to a worker that is gone, and nobody waits for it.
        self._heartbeat.stop()
        self._member.leave()
        if error is None:
            self._raise_failure()

    def grants(self) -> Mapping[str, Grant]:
        """What this worker held at its last look, by partition.

        This is to know what to work on. What makes a late writer harmless is ``commit``.
        """
        self._raise_failure()
        return self._member.grants

    def look_soon(self) -> None:
        """Look at the tables now and not when it is time: for whoever has just committed, and has room."""
        self._sooner.set()

    def _run(self) -> None:
        try:
            while not self._leaving.is_set():
                try:
                    self._member.step(time.monotonic())
                except StoreError as err:
                    log.warning("%s could not look at the tables, and tries again: %s", self.name, err)
                self._sooner.wait(self.spans.look_every)
                self._sooner.clear()
        except Exception as err:  # the work's own failure: told where the worker is asked
            log.exception("%s stops taking part", self.name)
            self._failure = err
            self._heartbeat.stop()

    def _raise_failure(self) -> None:
        if isinstance(self._failure, LeaseError):
            raise self._failure
        if self._failure is not None:
            failure = f"{type(self._failure).__name__}: {self._failure}"
            raise LeaseError(
                f"worker {self.name}", "work that takes its calls", failure, "its partitions go to others"
            ) from self._failure
