"""Virtual time: what is to happen, and when; and workers that are held up by their work."""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable


class Agenda:
    """Events in the order of their times, in seconds; those of the same time in the order they were entered."""

    def __init__(self) -> None:
        self.now = 0.0
        self._entries: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()

    def at(self, time: float, event: Callable[[], None]) -> None:
        """Enter an event."""
        heapq.heappush(self._entries, (max(time, self.now), next(self._order), event))

    def run_until(self, end: float) -> None:
        """Let everything happen that is due up to and including ``end``."""
        while self._entries and self._entries[0][0] <= end:
            self.now, _, event = heapq.heappop(self._entries)
            event()
        self.now = end


class Pace:
    """When a worker gets round to something: between two pieces of its work.

    Args:
        agenda: the virtual time.
        rng: draws how long a piece takes.
        mean_piece: how long a piece takes on average now, in seconds; 0 for a worker that is idle.
    """

    def __init__(self, agenda: Agenda, rng: random.Random, mean_piece: Callable[[], float]) -> None:
        self._agenda, self._rng, self._mean_piece = agenda, rng, mean_piece
        self._between_pieces = 0.0

    def soon(self, time: float, event: Callable[[], None]) -> None:
        """Enter an event that is due at ``time`` and happens when the worker gets round to it."""
        self._agenda.at(time, lambda: self._when_free(event))

    def _when_free(self, event: Callable[[], None]) -> None:
        now, mean = self._agenda.now, self._mean_piece()
        if mean <= 0:
            event()
            return
        # After a long idle time there is no need to draw all pieces of it.
        self._between_pieces = max(self._between_pieces, now - 100 * mean)
        while self._between_pieces < now:
            self._between_pieces += self._rng.expovariate(1 / mean)
        self._agenda.at(self._between_pieces, event)
