"""The five time spans of the algorithm, and how they must relate."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Self

from skewless_leases.errors import LeaseError

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
        for field in fields(self):
            if not getattr(self, field.name) > 0:
                raise self._refused(field.name, "more than 0 seconds")
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

    def patience(self, held: int) -> float:
        """How long a worker that holds so many partitions leaves the first move to others, in seconds."""
        return min((held + 0.5) * self.held_delay, self.normal_lease)
