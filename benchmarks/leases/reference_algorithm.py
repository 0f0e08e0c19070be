"""The original algorithm in virtual time, as its author describes it, to see it fail as its author says.

"Algorithm for distributed load balancing of batch processing" (henrik.org, 9 July 2015): "this
algorithm doesn't work in practice. The problem is that nodes under heavy load tend to be too slow to
answer to hold on to their leases causing partitions to jump between hosts." The step numbers below are
those of that text. Where the text is unclear, we took the reading that makes the algorithm work while it is idle, as
its author saw it work: the holder waits (n - 1) delays, not (n - 1/2), and each partition has its own timer, started
at its own moment, so that a newcomer does not win all races at once.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from benchmarks.leases.agenda import Agenda, Pace
from skewless_leases.lease_tables import TimeSpans


@dataclass
class Cache:
    """The two hash tables and the two subscriptions that the nodes share; what is published is heard after a while."""

    agenda: Agenda
    message_seconds: float = 0.001
    allocation: dict[str, str] = field(default_factory=dict)
    grab: dict[str, str] = field(default_factory=dict)
    nodes: list[ReferenceNode] = field(default_factory=list)

    def publish_grab(self, partition: str) -> None:
        """Tell all nodes that the lease of a partition is challenged."""
        for node in self.nodes:
            node.soon(self.message_seconds, node.grab_signalled, partition)

    def publish_allocated(self, partition: str) -> None:
        """Tell all nodes that a partition has been shut down."""
        for node in self.nodes:
            node.soon(self.message_seconds, node.partition_ended, partition)


class ReferenceNode:
    """One node of the original algorithm.

    Args:
        name: its name in the tables.
        cache: the tables.
        spans: the five time spans.
        shutdown_seconds: how long a partition takes to shut down.
        piece_seconds: how long a piece of work takes on average, by the partitions it processes.
        rng: draws how long a piece takes.
    """

    def __init__(
        self,
        name: str,
        cache: Cache,
        spans: TimeSpans,
        shutdown_seconds: float,
        piece_seconds: Callable[[Collection[str]], float],
        rng: random.Random,
    ) -> None:
        self.name, self.cache, self.spans = name, cache, spans
        self.shutdown_seconds = shutdown_seconds
        self.active: set[str] = set()
        self.dead = False
        self._pace = Pace(cache.agenda, rng, lambda: piece_seconds(self.active))
        self._signalled: dict[str, float] = {}
        self._won: dict[str, int] = {}  # partitions it has won and waits for, with the number of the wait
        self._waits = 0
        self._timers: dict[str, int] = {}
        cache.nodes.append(self)

    def soon(self, delay: float, step: Callable[[str], None], partition: str) -> None:
        """Take a step after a delay, when the node gets round to it."""
        self._pace.soon(self.cache.agenda.now + delay, lambda: None if self.dead else step(partition))

    def start(self, phases: Mapping[str, float]) -> None:
        """Begin the timers, one for each partition, after so many seconds."""
        for partition, phase in phases.items():
            self._signalled[partition] = self.cache.agenda.now
            self._set_timer(partition, phase)

    def _set_timer(self, partition: str, delay: float) -> None:
        self._timers[partition] = timer = self._timers.get(partition, 0) + 1
        self.soon(delay, lambda name: self._challenge(name, timer), partition)

    def _challenge(self, partition: str, timer: int) -> None:
        """Step 1: once in a normal lease time, signal what may be challenged."""
        if self._timers[partition] != timer:
            return
        silent = self.cache.agenda.now - self._signalled[partition]
        if silent > self.spans.maximum_lease:
            self.cache.allocation.pop(partition, None)
            self.cache.grab.pop(partition, None)
            self.cache.publish_grab(partition)
        elif partition not in self.active and partition not in self.cache.grab:
            self.cache.publish_grab(partition)
        self._set_timer(partition, self.spans.normal_lease)

    def grab_signalled(self, partition: str) -> None:
        """Step 2: wait the longer the more is held; the holder has a head start."""
        self._signalled[partition] = self.cache.agenda.now
        self._set_timer(partition, self.spans.normal_lease)
        head_start = -1.0 if partition in self.active else 0.5
        self.soon((len(self.active) + head_start) * self.spans.held_delay, self._race, partition)

    def _race(self, partition: str) -> None:
        """Step 3: the first one wins."""
        if self.cache.grab.setdefault(partition, self.name) != self.name:
            if partition in self.active:
                self.soon(self.shutdown_seconds, self._shut_down, partition)
            return
        self.soon(self.spans.minimum_grab, self._unmark, partition)
        if partition in self.active:
            return
        if self.cache.allocation.get(partition, self.name) == self.name:  # step 4
            self._begin(partition)
            return
        self._waits += 1
        self._won[partition] = wait = self._waits
        self.soon(self.spans.maximum_shutdown, lambda name: self._waited_enough(name, wait), partition)

    def _shut_down(self, partition: str) -> None:
        self.active.discard(partition)
        if self.cache.allocation.get(partition) == self.name:
            del self.cache.allocation[partition]
        self.cache.publish_allocated(partition)

    def partition_ended(self, partition: str) -> None:
        """Step 4: the node that has won the partition may begin."""
        if partition in self._won:
            self._begin(partition)

    def _waited_enough(self, partition: str, wait: int) -> None:
        if self._won.get(partition) == wait:
            self._begin(partition)

    def _begin(self, partition: str) -> None:
        """Step 5."""
        self._won.pop(partition, None)
        self.cache.allocation[partition] = self.name
        self.active.add(partition)

    def _unmark(self, partition: str) -> None:
        """Step 6: it may be challenged again."""
        if self.cache.grab.get(partition) == self.name:
            del self.cache.grab[partition]
