"""A store in the memory of one process, for simulations and tests."""

from __future__ import annotations

from skewless_leases.store import Versioned


class MemoryStore:
    """A KeyValueStore that is gone with its process. Not for several threads."""

    def __init__(self) -> None:
        self._rows: dict[str, Versioned] = {}
        self._writes = 0

    def get(self, key: str) -> Versioned | None:
        """The value of a key, or None."""
        return self._rows.get(key)

    def put(self, key: str, value: bytes, expected: str | None) -> str | None:
        """Write if the key still has that version; the new version, or None."""
        if self._version(key) != expected:
            return None
        self._writes += 1
        self._rows[key] = Versioned(value, str(self._writes))
        return self._rows[key].version

    def delete(self, key: str, expected: str) -> bool:
        """Remove if the key still has that version."""
        if self._version(key) != expected:
            return False
        del self._rows[key]
        return True

    def scan(self) -> dict[str, Versioned]:
        """All keys."""
        return dict(self._rows)

    def _version(self, key: str) -> str | None:
        row = self._rows.get(key)
        return row.version if row else None
