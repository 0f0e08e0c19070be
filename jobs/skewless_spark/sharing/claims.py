"""The claims of a cluster that it has not begun: the thread of the leases hands them to the threads that work."""

from __future__ import annotations

import threading

from skewless_leases import Grant


class Claims:
    """The work of a lease's worker (``skewless_leases.balancing.member.Work``): grants wait here, by name.

    A claim that has been begun is kept to its end. A claim that waits is given back as soon as another cluster asks.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, Grant] = {}
        self._changed = threading.Condition()

    def granted(self, grant: Grant) -> None:
        """Let a grant wait until a thread is free."""
        with self._changed:
            self._waiting[grant.partition] = grant
            self._changed.notify()

    def asked_back(self, grant: Grant) -> bool:
        """Whether a grant was given back: it is if it still waits, and kept if it has been begun."""
        with self._changed:
            return self._waiting.pop(grant.partition, None) is not None

    def lost(self, grant: Grant) -> None:
        """Drop a grant whose lease is lost. If it has been begun, its fence will refuse the result."""
        with self._changed:
            if self._waiting.get(grant.partition) == grant:
                del self._waiting[grant.partition]

    def next(self, within: float) -> Grant | None:
        """The next grant, which counts as begun from now on; None if none comes within that many seconds."""
        with self._changed:
            if not self._waiting:
                self._changed.wait(within)
            return self._waiting.pop(min(self._waiting)) if self._waiting else None
