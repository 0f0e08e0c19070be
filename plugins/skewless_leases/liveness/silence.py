"""How long each worker has been silent, as one observer has seen it with its own monotonic clock.

No clock is ever compared with another one, and no time is stored: a heartbeat is a number that
changes. A wall clock that jumps changes nothing here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from skewless_leases.stores.tables import Look


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
