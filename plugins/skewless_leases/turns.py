"""Turns: who came last to something that is done again and again, such as publishing the result of a day.

A turn is a fencing number without a lease. It is drawn once, before the work, and kept; what was done in a
turn counts only if nothing of a later turn has been done. So an old attempt that is started again finds its
old turn, and undoes nothing.
"""

from __future__ import annotations

import re

from skewless_leases.errors import LeaseError
from skewless_leases.store import KeyValueStore

TURNS = "turns/"


class Turns:
    """The turns of some names, in a store; numbers begin at 1, and 0 is none."""

    def __init__(self, store: KeyValueStore) -> None:
        self.store = store

    def draw(self, name: str) -> int:
        """The next turn. Nobody draws the same one; one that is drawn and not used is no harm."""
        while True:
            drawn, finished, version = self._read(name)
            if self._write(name, drawn + 1, finished, version):
                return drawn + 1

    def finished(self, name: str) -> int:
        """The last turn that was finished, 0 if none was."""
        return self._read(name)[1]

    def finish(self, name: str, turn: int) -> bool:
        """Say that a turn's work is done.

        Returns:
            False if a later turn's was done before: this one's does not count. Finishing twice is no harm.

        Raises:
            LeaseError: the turn was never drawn.
        """
        while True:
            drawn, finished, version = self._read(name)
            if not 0 < turn <= drawn:
                raise LeaseError(f"turn of {name}", f"one of the {drawn} that were drawn", str(turn))
            if finished >= turn:
                return finished == turn
            if self._write(name, drawn, turn, version):
                return True

    def _read(self, name: str) -> tuple[int, int, str | None]:
        row = self.store.get(TURNS + name)
        if row is None:
            return 0, 0, None
        found = re.fullmatch(rb"drawn (\d{1,18}) finished (\d{1,18})", row.value)
        if found is None:
            raise LeaseError(f"turns of {name}", "two numbers", repr(row.value[:120]), "it was edited by hand, or torn")
        return int(found[1]), int(found[2]), row.version

    def _write(self, name: str, drawn: int, finished: int, version: str | None) -> bool:
        return self.store.put(TURNS + name, b"drawn %d finished %d" % (drawn, finished), version) is not None
