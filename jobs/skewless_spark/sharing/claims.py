"""What a cluster has been granted and not begun yet: handed from the thread of the leases to those that work."""

from __future__ import annotations

import threading

from skewless_leases import Grant


class Claims:
    """The work of a lease's worker (``skewless_leases.balancing.member.Work``): grants wait here, by name.

    What has been begun is kept, and ends; what waits goes back as soon as it is asked for.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, Grant] = {}
        self._changed = threading.Condition()

    def granted(self, grant: Grant) -> None:
        """Let it wait until somebody is free for it."""
        with self._changed:
            self._waiting[grant.partition] = grant
            self._changed.notify()

    def asked_back(self, grant: Grant) -> bool:
        """Give it back if it still waits; what has been begun is kept, which the next look will show."""
        with self._changed:
            return self._waiting.pop(grant.partition, None) is not None

    def lost(self, grant: Grant) -> None:
        """Do not begin it; if it has been begun, its fence refuses what comes of it."""
        with self._changed:
            if self._waiting.get(grant.partition) == grant:
                del self._waiting[grant.partition]

    def next(self, within: float) -> Grant | None:
        """The next one, begun from now on; None if none comes within so many seconds."""
        with self._changed:
            if not self._waiting:
                self._changed.wait(within)
            return self._waiting.pop(min(self._waiting)) if self._waiting else None
