"""Fencing numbers: grants, and writes that only the current one can make; and turns.

What a holder commits lies in the same record as its fencing number, so that one compare-and-set
both checks the fence and writes. A holder that was stopped between its check and its write finds
the record changed when it wakes. Whatever writes under a grant that has ended raises FencedOutError, and has written
nothing.

A turn is a fencing number without a lease. It is drawn once, before the work, and kept. Whoever is about to make
its work visible *claims* its turn, which is refused once a later one is claimed; whoever has done so *finishes*
it. So an old attempt that is started again finds its old turn, and undoes nothing.

One counter gives the turns of a store; what is claimed and finished is kept by name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from skewless_leases.lease_tables import ALLOCATION, Allocation, Row, decode, encode, parsed
from skewless_leases.store import FencedOutError, KeyValueStore, LeaseError

#: Every worker reads all records at every look: a value is a pointer to data, or a small manifest.
LONGEST_VALUE_CHARACTERS = 65_536


@dataclass(frozen=True)
class Grant:
    """The right to work on a partition, until somebody is granted it under a higher number.

    It may be handed to another process, which then writes under it with ``commit``.
    """

    partition: str
    fence: int
    holder: str


def read(store: KeyValueStore, partition: str) -> Allocation:
    """Who holds a partition, under which fencing number, and what was last committed."""
    row = _row(store, partition)
    return row.record if row else Allocation(fence=0)


def check(store: KeyValueStore, grant: Grant) -> Row[Allocation]:
    """Raise FencedOutError unless a grant still holds; it may end the moment after. Only ``commit`` is safe."""
    row = _row(store, grant.partition)
    if row and (row.record.fence, row.record.holder) == (grant.fence, grant.holder):
        return row
    now = f"{row.record.fence}, held by {row.record.holder or 'nobody'}" if row else "none at all"
    raise FencedOutError(
        f"partition {grant.partition}",
        f"fencing number {grant.fence} of {grant.holder} to be the last one granted",
        now,
        "nothing was written; stop this work, its successor goes on from what was committed last",
    )


def commit(store: KeyValueStore, grant: Grant, value: str) -> None:
    """Write under a grant: the write happens only if the grant still holds at that moment."""
    if len(value) > LONGEST_VALUE_CHARACTERS:
        required = f"a value of at most {LONGEST_VALUE_CHARACTERS} characters"
        hint = "commit where the data is, not the data"
        raise LeaseError(f"partition {grant.partition}", required, f"{len(value)}", hint)
    _rewrite(store, grant, lambda record: replace(record, value=value))


def release(store: KeyValueStore, grant: Grant, value: str | None = None) -> None:
    """Give a partition back; the fencing number stays, and what was committed, unless another value is given."""
    _rewrite(
        store, grant,
        lambda record: replace(record, holder=None, kept=False, value=record.value if value is None else value),
    )  # fmt: skip


def keep(store: KeyValueStore, grant: Grant) -> None:
    """Ask that a partition be not moved for the sake of balance: its work is under way, and would be lost.

    It lasts as long as the grant. A holder that dies loses it all the same.
    """
    _rewrite(store, grant, lambda record: replace(record, kept=True))


def take(store: KeyValueStore, partition: str, worker: str, seen: Row[Allocation] | None) -> Grant | None:
    """Become the holder if the record is still the one that was seen; None if it is not."""
    last = seen.record if seen else Allocation(fence=0)
    mine = replace(last, fence=last.fence + 1, holder=worker, kept=False)
    if store.put(ALLOCATION + partition, encode(mine), seen.version if seen else None) is None:
        return None
    return Grant(partition, mine.fence, worker)


def _rewrite(store: KeyValueStore, grant: Grant, change: Callable[[Allocation], Allocation]) -> None:
    while True:
        row = check(store, grant)
        if store.put(ALLOCATION + grant.partition, encode(change(row.record)), row.version):
            return
        # Either the grant has ended, or another process wrote under the same one.


def _row(store: KeyValueStore, partition: str) -> Row[Allocation] | None:
    key = ALLOCATION + partition
    stored = store.get(key)
    return Row(decode(Allocation, stored.value, key), stored.version) if stored else None


DRAWN, NAMES = "turns-drawn", "turns/"
#: Numbers are stored as text; more digits are nobody's.
_MOST_DIGITS = 18


@dataclass(frozen=True)
class Standing:
    """Who has claimed and finished the latest turns of a name; 0 and an empty text mean nobody."""

    claimed: int = 0
    """The highest turn whose work may become visible."""
    claimant: str = ""
    finished: int = 0
    """The highest turn whose work is done; at most ``claimed``."""
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
        return self._changed(name, lambda standing: standing)

    def claim(self, name: str, turn: int, who: str) -> Standing:
        """Claim a turn, unless that one or a later one is claimed.

        Returns:
            How things stand then. The turn is claimed only if it is named there, together with ``who``.
        """
        return self._changed(
            name, lambda before: before if before.claimed >= turn else replace(before, claimed=turn, claimant=who)
        )

    def finish(self, name: str, turn: int, who: str) -> Standing:
        """Say that a turn's work is done, unless that of a later one is. Finishing twice is no harm.

        Returns:
            How things stand then. The turn's work counts only if it is named there as finished, with ``who``.
        """

        def finished(before: Standing) -> Standing:
            if before.finished >= turn:
                return before
            if before.claimed < turn:  # the store was lost since the turn was claimed
                before = replace(before, claimed=turn, claimant=who)
            return replace(before, finished=turn, finisher=who)

        return self._changed(name, finished)

    def _changed(self, name: str, change: Callable[[Standing], Standing]) -> Standing:
        while True:
            row = self.store.get(NAMES + name)
            before = _standing(row.value, name) if row else Standing()
            after = change(before)
            if after == before or self.store.put(NAMES + name, encode(after), row.version if row else None) is not None:
                return after


def _number(value: bytes) -> int:
    if not value.isdigit() or len(value) > _MOST_DIGITS:
        hint = "it was edited by hand, or torn: remove it, and the next turn is drawn above the published ones"
        raise LeaseError("turns that were drawn", "a number", repr(value[:120]), hint)
    return int(value)


def _standing(value: bytes, name: str) -> Standing:
    standing = parsed(Standing, value)
    if standing is not None and standing.finished <= standing.claimed:
        return standing
    hint = "it was edited by hand, or torn: remove it, and the turn of the published folder counts"
    raise LeaseError(f"turns of {name}", "two numbers and two names", repr(value[:120]), hint)
