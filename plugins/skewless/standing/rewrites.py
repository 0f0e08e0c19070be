"""Files of a table that hold the rows of others: compaction changes no row, and the states of the old files stand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple


class FileName(NamedTuple):
    """What names the rows of a file of a table for ever: its path, and the version that tells which are deleted."""

    path: str
    version: str


class Rewrite(NamedTuple):
    """A commit that says of itself that it changed no row.

    Attributes:
        before: the files of a part before it.
        after: the files of the part after it.
    """

    before: frozenset[FileName]
    after: frozenset[FileName]


class Standing(NamedTuple):
    """What became of the files that states were made of.

    Attributes:
        covered: files that hold just the rows of the states, together with the lost ones.
        lost: files that are gone or changed, whose rows are not in others.
    """

    covered: frozenset[FileName]
    lost: frozenset[FileName]


def standing_for(known: Iterable[FileName], rewrites: Sequence[Rewrite]) -> Standing:
    """Follow the files of a part through rewrites.

    Files never change, so it does not matter what was committed between two rewrites: a file that is there before one
    has the rows that it always had. A rewrite that mixes files of the states with others cannot be followed.

    Args:
        known: the files that the states were made of.
        rewrites: oldest first; some may be missing.
    """
    covered, lost = set(known), set[FileName]()
    for one in rewrites:
        lost |= covered - one.before
        covered &= one.before
        old, new = one.before - one.after, one.after - one.before
        if old and old <= covered:
            covered = covered - old | new
        else:
            lost |= covered & old
            covered -= old
    return Standing(frozenset(covered), frozenset(lost))
