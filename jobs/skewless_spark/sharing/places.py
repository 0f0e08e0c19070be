"""The places at which a cluster works on tasks: one for each slot, and at times one more that waits for a slot."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

#: Seconds between two questions whether there may be one more.
_POLL_SECONDS = 0.2


class Place:
    """Work that has begun, or waits in Spark for a slot."""

    def __init__(self) -> None:
        self.started = time.monotonic()

    def seconds(self) -> float:
        """The time since a slot was free for it."""
        return round(time.monotonic() - self.started, 3)


class Places:
    """As many places as there are slots, and one more where that is asked for.

    Between two tasks a slot would wait for the driver, which has to plan the next one. One that was handed to Spark
    before begins as soon as a slot is free.

    Args:
        slots: how many tasks Spark runs at once.
    """

    def __init__(self, slots: int) -> None:
        self._slots, self._taken = slots, 0
        self._waiting: Place | None = None
        self._changed = threading.Condition()

    @contextmanager
    def one(self, further: Callable[[], bool]) -> Iterator[Place]:
        """Take a place, once there is one.

        Args:
            further: whether there may be one more place than slots.
        """
        with self._changed:
            while self._taken >= self._slots + further():
                self._changed.wait(_POLL_SECONDS)
            self._taken += 1
            place = Place()
            if self._taken > self._slots:
                self._waiting = place
        try:
            yield place
        finally:
            with self._changed:
                self._taken -= 1
                if self._waiting not in (None, place):
                    self._waiting.started = time.monotonic()
                self._waiting = None
                self._changed.notify()
