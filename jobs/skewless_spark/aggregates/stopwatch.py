"""Where a task's time goes: in total, and for each key that has many of its rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Groups = npt.NDArray[np.int64]

#: Of a batch at most so many keys are timed apart, the heaviest: every further call of an aggregate costs some ten
#: microseconds. A key of fewer rows than ``TIMED_ROWS`` is one of them only in a batch that has few rows.
TIMED_KEYS, TIMED_ROWS = 64, 8


def timed_apart(counts: Groups) -> Groups:
    """The groups of a batch that are timed apart.

    Args:
        counts: the rows of each group in the batch, shape ``(groups,)``.
    """
    least = max(2.0, min(TIMED_ROWS, int(counts.sum()) / TIMED_KEYS))
    heavy: Groups = np.flatnonzero(counts >= least)
    if len(heavy) > TIMED_KEYS:
        heaviest = heavy[np.argsort(-counts[heavy], kind="stable")[:TIMED_KEYS]]
        heavy = np.sort(heaviest)
    return heavy


class Stopwatch:
    """Seconds of one task, and of the keys that were timed apart.

    The batches alone decide which rows are timed together, never the time itself, so that a task that is run again
    groups its rows in the same way.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.seconds = 0.0
        self._of_groups = np.zeros(0)
        self._timed_rows = np.zeros(0, dtype=np.int64)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Count the time of the block."""
        started = self._clock()
        try:
            yield
        finally:
            self.seconds += self._clock() - started

    def timed(self, groups: Groups, counts: Groups, update: Callable[[Groups, Groups | None], None]) -> None:
        """Update with a batch, and time its heavy keys apart.

        Rows of one key stay in order; rows of different keys may be reordered.

        Args:
            groups: the group of each row, shape ``(rows,)``, not empty.
            counts: the rows of each group in the batch, shape ``(groups,)``.
            update: called with groups and the row numbers they have in the batch, or None for the whole batch.
        """
        heavy = timed_apart(counts)
        self._grow(len(counts))
        self._timed_rows[heavy] += counts[heavy]
        # A sort of small integers, which numpy does in one pass over the rows, however many keys are heavy.
        place = np.full(len(counts), len(heavy), dtype=np.int8)
        place[heavy] = np.arange(len(heavy))
        order = np.argsort(place[groups], kind="stable")
        *apart, rest = np.split(order, np.cumsum(counts[heavy]))
        for group, at in zip(heavy.tolist(), apart, strict=True):
            before = self.seconds
            with self.running():
                update(groups[at], None if len(at) == len(groups) else at)
            self._of_groups[group] += self.seconds - before
        if len(rest):
            with self.running():
                update(groups[rest], None if not len(heavy) else rest)

    def of_groups(self, rows: Groups) -> pa.Array:
        """Seconds of each group, null where it was never timed apart, shape ``(groups,)``.

        In batches in which a key was light, it is assumed to have cost the same per row.

        Args:
            rows: the total rows of each group, shape ``(groups,)``.
        """
        self._grow(len(rows))
        timed = self._timed_rows > 0
        scaled = self._of_groups * rows / np.maximum(self._timed_rows, 1)
        return pa.array(scaled, mask=~timed)

    def _grow(self, total: int) -> None:
        more = total - len(self._of_groups)
        if more > 0:
            self._of_groups = np.concatenate([self._of_groups, np.zeros(more)])
            self._timed_rows = np.concatenate([self._timed_rows, np.zeros(more, dtype=np.int64)])
