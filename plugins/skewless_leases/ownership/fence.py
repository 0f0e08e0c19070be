"""Grants, and writes that only the current one can make.

What a holder commits lies in the same record as its fencing number, so that one compare-and-set
both checks the fence and writes. A holder that was stopped between its check and its write finds
the record changed when it wakes. Whatever writes under a grant that has ended raises FencedOutError, and has written
nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from skewless_leases.lease_errors import FencedOutError, LeaseError
from skewless_leases.stores.lease_tables import ALLOCATION, Allocation, Row, decode, encode
from skewless_leases.stores.store import KeyValueStore

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


def check(store: KeyValueStore, grant: Grant) -> None:
    """Raise FencedOutError unless a grant still holds; it may end the moment after. Only ``commit`` is safe."""
    _under(store, grant)


def commit(store: KeyValueStore, grant: Grant, value: str) -> None:
    """Write under a grant: the write happens only if the grant still holds at that moment."""
    if len(value) > LONGEST_VALUE_CHARACTERS:
        required, hint = (
            f"a value of at most {LONGEST_VALUE_CHARACTERS} characters",
            "commit where the data is, not the data",
        )
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
        row = _under(store, grant)
        if store.put(ALLOCATION + grant.partition, encode(change(row.record)), row.version):
            return
        # Either the grant has ended, or another process wrote under the same one.


def _under(store: KeyValueStore, grant: Grant) -> Row[Allocation]:
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


def _row(store: KeyValueStore, partition: str) -> Row[Allocation] | None:
    key = ALLOCATION + partition
    found = store.get(key)
    return Row(decode(Allocation, found.value, key), found.version) if found else None
