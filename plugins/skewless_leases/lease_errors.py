"""What can go wrong with leases, in the one-sentence form of ``skewless.errors``."""

from __future__ import annotations

from skewless.errors import SkewlessError


class LeaseError(SkewlessError):
    """Leases were set up, or are stored, in a way that cannot work."""


class FencedOutError(LeaseError):
    """A write under a lease that somebody else has been granted since; nothing was written."""


class StoreError(LeaseError):
    """The key-value store cannot be reached, or refuses what it was asked."""
