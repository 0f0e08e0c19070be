"""The key-value store that leases live in: four calls, each of them on one key, each atomic.

Every write is conditional on the version that the writer has read, so that nobody overwrites
what it has not seen. A version is never used twice, not even after a deletion.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from skewless.errors import SkewlessError


class LeaseError(SkewlessError):
    """Leases were set up, or are stored, in a way that cannot work."""


class FencedOutError(LeaseError):
    """A write under a lease that somebody else has been granted since; nothing was written."""


class StoreError(LeaseError):
    """The key-value store cannot be reached, or refuses a request."""


@dataclass(frozen=True)
class Versioned:
    """A stored value and the version that the next writer has to name."""

    value: bytes
    version: str


#: A file's name may be 255 bytes long on common file systems; other stores take no longer keys, so that a job can move.
LONGEST_KEY_BYTES = 200


def bad_key(store: object, key: str) -> LeaseError:
    """A store cannot have a key of this length, or of this form."""
    return LeaseError(
        f"store {store}", f"a key of at most {LONGEST_KEY_BYTES} bytes, quoted", repr(key[:80]), "shorten it"
    )


@contextmanager
def as_store_error(store: object, what: str) -> Iterator[None]:
    """An operating system's error, or one of a client that has its form, as a StoreError."""
    try:
        yield
    except OSError as err:
        reason = err.strerror or type(err).__name__
        raise StoreError.saying(f"store {store}", f"{what} cannot be read or written ({reason})") from err


class KeyValueStore(Protocol):
    """Compare and set on single keys.

    All calls may raise StoreError; then a write may have happened or not. A key that can never be stored is
    another LeaseError.
    """

    def get(self, key: str) -> Versioned | None:
        """The value of a key, or None if there is none."""

    def put(self, key: str, value: bytes, expected: str | None) -> str | None:
        """Write if the key still has the version ``expected``; None: if there is no such key.

        Returns:
            The new version, or None if somebody else was faster and nothing was written.
        """

    def delete(self, key: str, expected: str) -> bool:
        """Remove the key if it still has that version, and say whether this call did."""

    def scan(self) -> dict[str, Versioned]:
        """All keys. Each is read atomically, but not all of them at one moment."""
