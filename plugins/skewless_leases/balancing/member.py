"""A worker among others, without threads and clocks: looks, decides, enacts.

The time is an argument, so that a simulation and a test drive exactly what ``worker`` runs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import Protocol

from skewless_leases.balancing.decisions import Action, Challenge, ClearGrab, Memory, Surrender, Take, decide
from skewless_leases.lease_errors import FencedOutError, LeaseError
from skewless_leases.liveness.spans import TimeSpans
from skewless_leases.ownership.fence import Grant, release, take
from skewless_leases.stores.lease_tables import GRAB, Grab, Look, encode, look_at
from skewless_leases.stores.store import KeyValueStore

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
    """One worker's part of the algorithm.

    Args:
        store: where the tables are.
        name: this worker's; nobody else's, and not that of an earlier life either.
        partitions: all that are to be held now, given what was committed by partition; a mapping says what each
            weighs. It is asked at each look; what it leaves out is not taken, moved or counted any more.
        spans: the five time spans.
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
        partitions = self.partitions(look.committed())
        actions, self.memory = decide(self.name, partitions, look, self.memory, self.spans)
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
            overtaken = look.fence(partition) > grant.fence
            if overtaken or (look.fence(partition) == grant.fence and look.holder(partition) != self.name):
                del self._grants[partition]
                log.warning("%s lost %s, fencing number %d", self.name, partition, grant.fence)
                self.work.lost(grant)
        for partition, row in look.allocations.items():
            if row.record.holder == self.name and partition not in self._grants:
                self._begin(Grant(partition, row.record.fence, self.name))

    def _enact(self, action: Action, look: Look) -> None:
        if isinstance(action, Take):
            self._take(action, look)
        elif isinstance(action, Surrender):
            self._surrender(action)
        elif isinstance(action, Challenge):
            grab = Grab(self.name, look.fence(action.partition))
            made = self.store.put(GRAB + action.partition, encode(grab), None)
            self._say(action, "done" if made else "refused: somebody else has challenged it")
        elif isinstance(action, ClearGrab):
            done = self.store.delete(GRAB + action.partition, look.grabs[action.partition].version)
            self._say(action, "done" if done else "refused: it has changed")

    def _take(self, action: Take, look: Look) -> None:
        grant = take(self.store, action.partition, self.name, look.allocations.get(action.partition))
        self._say(action, f"done, fencing number {grant.fence}" if grant else "refused: somebody was faster")
        if grant:
            self._begin(grant)

    def _surrender(self, action: Surrender) -> None:
        grant = self._grants[action.partition]
        if not self.work.asked_back(grant):
            self._say(action, "stopping")
            return
        try:
            release(self.store, grant)
            self._say(action, "done")
        except FencedOutError as err:
            self._say(action, f"refused: {err}")
        del self._grants[action.partition]

    def _begin(self, grant: Grant) -> None:
        self._grants[grant.partition] = grant
        self.work.granted(grant)

    def _say(self, action: Action, outcome: str) -> None:
        log.info("%s: %s: %s", self.name, action, outcome)
