"""The claims of a cluster that it has not begun: the thread of the leases hands them to the threads that work."""

from __future__ import annotations

import threading

from skewless_leases import Grant


class Claims:
    """The work of a lease's worker (``skewless_leases.balancing.member.Work``): grants wait here, by name.

    A claim that has been begun is kept to its end. A claim that waits, or is prepared while another one is worked on,
    is given back as soon as another cluster asks.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, Grant] = {}
        self._prepared: dict[str, Grant] = {}
        self._changed = threading.Condition()

    def granted(self, grant: Grant) -> None:
        """Let a grant wait until a thread is free."""
        with self._changed:
            self._waiting[grant.partition] = grant
            self._changed.notify()

    def asked_back(self, grant: Grant) -> bool:
        """Whether a grant was given back: it is if it has not been begun."""
        with self._changed:
            return any(claims.pop(grant.partition, None) is not None for claims in (self._waiting, self._prepared))

    def lost(self, grant: Grant) -> None:
        """Drop a grant whose lease is lost. If it has been begun, its fence will refuse the result."""
        with self._changed:
            for claims in (self._waiting, self._prepared):
                if claims.get(grant.partition) == grant:
                    del claims[grant.partition]

    def next(self, within: float) -> Grant | None:
        """The next grant to prepare; None if none comes within that many seconds."""
        with self._changed:
            if not self._waiting:
                self._changed.wait(within)
            if not self._waiting:
                return None
            grant = self._waiting.pop(min(self._waiting))
            self._prepared[grant.partition] = grant
            return grant

    def begin(self, grant: Grant) -> bool:
        """Whether a grant that was prepared is still here; it counts as begun from now on."""
        with self._changed:
            if self._prepared.get(grant.partition) != grant:
                return False
            del self._prepared[grant.partition]
            return True
