"""One heartbeat: a number in the store that changes."""

from __future__ import annotations

import contextlib

from skewless_leases.errors import LeaseError
from skewless_leases.stores.store import KeyValueStore
from skewless_leases.stores.tables import WORKERS, Presence, decode, encode


class Beat:
    """Writes a worker's presence; nobody else writes it, so that a beat is one call as a rule."""

    def __init__(self, store: KeyValueStore, worker: str, room: int) -> None:
        self.store, self.key, self.room = store, WORKERS + worker, room
        self._beat = 0
        self._version: str | None = None

    def once(self, *, gone: bool = False) -> bool:
        """Beat; with ``gone`` for the last time.

        Returns:
            False if somebody had removed or changed the record; the next call writes over what is there now.
        """
        self._beat += 1
        presence = Presence(self._beat, 0 if gone else self.room, gone=gone)
        version = self.store.put(self.key, encode(presence), self._version)
        if version is None:
            self._find()
            return False
        self._version = version
        return True

    def _find(self) -> None:
        row = self.store.get(self.key)
        self._version = row.version if row else None
        if row:
            # A heartbeat that was started anew goes on counting: a number that comes again is no beat.
            with contextlib.suppress(LeaseError):
                self._beat = max(self._beat, decode(Presence, row.value, self.key).beat)
