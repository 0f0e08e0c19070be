"""Turns: the order of those who do the same thing again and again, such as publishing the result of a day.

A turn is a fencing number without a lease. It is drawn once, before the work, and kept. Whoever is about to make
its work visible *claims* its turn, which is refused once a later one is claimed; whoever has done so *finishes*
it. So an old attempt that is started again finds its old turn, and undoes nothing.

One counter gives the turns of a store; what is claimed and finished is kept by name.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from skewless_leases.errors import LeaseError
from skewless_leases.stores.store import KeyValueStore
from skewless_leases.stores.tables import encode, parsed

DRAWN, NAMES = "turns-drawn", "turns/"
#: Numbers are stored as text; more digits are nobody's.
_MOST_DIGITS = 18


@dataclass(frozen=True)
class Standing:
    """Who has claimed and finished the latest turns of a name; 0 and an empty text mean nobody.

    Attributes:
        claimed: the highest turn whose work may become visible.
        claimant: who claimed it.
        finished: the highest turn whose work is done; at most ``claimed``.
        finisher: who finished it.
    """

    claimed: int = 0
    claimant: str = ""
    finished: int = 0
    finisher: str = ""


class Turns:
    """The turns of some names, in a store. Turns begin at 1; 0 means none."""

    def __init__(self, store: KeyValueStore) -> None:
        self.store = store

    def draw(self, above: int = 0) -> int:
        """The next turn. No two callers get the same one; a turn that is drawn and never used does no harm.

        Args:
            above: a turn that is known to have been drawn; the next one is above it even if the store was lost since.
        """
        while True:
            row = self.store.get(DRAWN)
            drawn = max(_number(row.value), above) + 1 if row else above + 1
            if self.store.put(DRAWN, b"%d" % drawn, row.version if row else None) is not None:
                return drawn

    def look(self, name: str) -> Standing:
        """How far the turns of a name are just now."""
        return self._read(name)[0]

    def claim(self, name: str, turn: int, who: str) -> Standing:
        """Claim a turn, unless that one or a later one is claimed.

        Returns:
            How things stand then. The turn is claimed only if it is named there, together with ``who``.
        """
        while True:
            before, version = self._read(name)
            if before.claimed >= turn:
                return before
            after = replace(before, claimed=turn, claimant=who)
            if self._write(name, after, version):
                return after

    def finish(self, name: str, turn: int, who: str) -> Standing:
        """Say that a turn's work is done, unless that of a later one is. Finishing twice is no harm.

        Returns:
            How things stand then. The turn's work counts only if it is named there as finished, with ``who``.
        """
        while True:
            before, version = self._read(name)
            if before.finished >= turn:
                return before
            after = replace(before, finished=turn, finisher=who)
            if after.claimed < turn:  # the store was lost since the turn was claimed
                after = replace(after, claimed=turn, claimant=who)
            if self._write(name, after, version):
                return after

    def _read(self, name: str) -> tuple[Standing, str | None]:
        row = self.store.get(NAMES + name)
        return (_standing(row.value, name), row.version) if row else (Standing(), None)

    def _write(self, name: str, standing: Standing, version: str | None) -> bool:
        return self.store.put(NAMES + name, encode(standing), version) is not None


def _number(value: bytes) -> int:
    if not value.isdigit() or len(value) > _MOST_DIGITS:
        hint = "it was edited by hand, or torn: remove it, and the next turn is drawn above the published ones"
        raise LeaseError("turns that were drawn", "a number", repr(value[:120]), hint)
    return int(value)


def _standing(value: bytes, name: str) -> Standing:
    found = parsed(Standing, value)
    if found is not None and found.finished <= found.claimed:
        return found
    hint = "it was edited by hand, or torn: remove it, and the turn of the published folder counts"
    raise LeaseError(f"turns of {name}", "two numbers and two names", repr(value[:120]), hint)
