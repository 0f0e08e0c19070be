"""The five time spans of the algorithm, how they must relate, and how long each worker has been silent.

No clock is ever compared with another one, and no time is stored: a heartbeat is a number that changes, and an observer
measures a silence by its own monotonic clock. A wall clock that jumps changes nothing here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Self

from skewless_leases.lease_errors import LeaseError
from skewless_leases.stores.lease_tables import Look

#: How often a worker looks at the tables within one normal lease time. Taking over from a live
#: holder needs three looks and one of the holder's; all of it has to fit into one normal lease time.
LOOKS_PER_LEASE = 8
#: How often a heartbeat beats within one maximum lease time.
BEATS_PER_LEASE = 10


@dataclass(frozen=True, kw_only=True)
class TimeSpans:
    """Five time spans, all in seconds; every worker on the same tables needs the same ones.

    Attributes:
        normal_lease: a worker starts at most one round of challenges in this time; a newcomer has its
            share after it.
        maximum_lease: a holder whose heartbeat did not change for this long is dead. At least twice
            the normal lease time.
        maximum_shutdown: how long a holder that has been asked for a partition may take to stop it,
            before it is taken by force. Shorter than the maximum lease time.
        minimum_grab: how long a partition that was challenged is left in peace after. Shorter than the
            normal lease time.
        held_delay: times the number of partitions that a worker holds (and a half): how long it leaves a chance
            to others, who have less. Shorter than the normal lease time, and never longer than that
            in all.
    """

    normal_lease: float = 60.0
    maximum_lease: float = 300.0
    maximum_shutdown: float = 30.0
    minimum_grab: float = 30.0
    held_delay: float = 0.5

    def __post_init__(self) -> None:
        for span in fields(self):
            if not getattr(self, span.name) > 0:
                raise self._refused(span.name, "more than 0 seconds")
        if self.maximum_lease < 2 * self.normal_lease:
            raise self._refused("maximum_lease", f"at least twice normal_lease ({self.normal_lease} seconds)")
        if self.maximum_shutdown >= self.maximum_lease:
            raise self._refused("maximum_shutdown", f"less than maximum_lease ({self.maximum_lease} seconds)")
        for name in ("minimum_grab", "held_delay"):
            if getattr(self, name) >= self.normal_lease:
                raise self._refused(name, f"less than normal_lease ({self.normal_lease} seconds)")

    def _refused(self, name: str, required: str) -> LeaseError:
        return LeaseError(f"time span {name}", required, f"{getattr(self, name)}")

    @classmethod
    def around(cls, normal_lease: float) -> Self:
        """Spans in good proportion to a normal lease time, in seconds."""
        return cls(
            normal_lease=normal_lease,
            maximum_lease=4 * normal_lease,
            maximum_shutdown=normal_lease,
            minimum_grab=normal_lease / 2,
            held_delay=normal_lease / 50,
        )

    @property
    def look_every(self) -> float:
        """How often a worker looks at the tables, in seconds."""
        return self.normal_lease / LOOKS_PER_LEASE

    @property
    def beat_every(self) -> float:
        """How often a heartbeat beats, in seconds."""
        return self.maximum_lease / BEATS_PER_LEASE

    def patience(self, held: float) -> float:
        """How long a worker that holds so many average partitions leaves the first move to others, in seconds."""
        return min((held + 0.5) * self.held_delay, self.normal_lease)


@dataclass(frozen=True)
class Heard:
    """What an observer has last heard of a worker; ``beat`` is None if there is no record of it."""

    beat: int | None
    silence: float


@dataclass(frozen=True)
class Silences:
    """The silence of all workers that were ever named in the tables, up to the last look."""

    time: float = 0.0
    heard: Mapping[str, Heard] = field(default_factory=dict)

    def after(self, look: Look, longest_gap: float) -> Silences:
        """Add a look.

        Args:
            look: the tables at that moment.
            longest_gap: what passed since the last look counts up to here, in seconds. An observer that was itself
                stopped, or could not reach the store, has not listened in the meantime; when everything
                wakes at once, it must not be the first one to speak and call all others dead.
        """
        passed = min(look.time - self.time, longest_gap) if self.heard else 0.0
        holders = {row.record.holder for row in look.allocations.values() if row.record.holder}
        challengers = {row.record.challenger for row in look.grabs.values()}
        heard = {}
        for worker in {*look.presences, *holders, *challengers}:
            row = look.presences.get(worker)
            beat = row.record.beat if row else None
            before = self.heard.get(worker)
            same = before is not None and before.beat == beat
            heard[worker] = Heard(beat, before.silence + passed if before and same else 0.0)
        return Silences(look.time, heard)

    def dead(self, look: Look, maximum_lease: float) -> frozenset[str]:
        """Who is gone, or has been silent for the maximum lease time or longer."""
        gone = {worker for worker, row in look.presences.items() if row.record.gone}
        return frozenset(gone | {worker for worker, last in self.heard.items() if last.silence >= maximum_lease})
