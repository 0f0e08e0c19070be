"""Where a task's time goes: key by key for those that have many of its rows, and in all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Groups = npt.NDArray[np.int64]

#: A key is timed apart in a batch of which it has at least this part: what a key of fewer rows costs
#: moves no task, and every further call of an aggregate costs some microseconds.
TIMED_PART = 1 / 64


class Stopwatch:
    """Seconds of one task, and of the keys that were timed apart.

    Which rows are timed together depends on the batches alone and never on the time itself, so that
    a task that is run again cuts them the same way.

    Args:
        clock: seconds, ascending.

    Attributes:
        seconds: of the task, all in all.
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

    def timed(self, groups: Groups, total: int, update: Callable[[Groups, Groups | None], None]) -> None:
        """Have a batch updated, its heavy keys apart.

        Rows of one key stay in order; those of different keys may change places.

        Args:
            groups: of each row, shape ``(rows,)``, not empty.
            total: groups there are.
            update: called with groups and their places in the batch; None for all of it.
        """
        counts = np.bincount(groups, minlength=total)
        heavy = np.flatnonzero(counts >= max(2.0, TIMED_PART * len(groups)))
        self._grow(total)
        self._timed_rows[heavy] += counts[heavy]
        rest = ~np.isin(groups, heavy)
        for group in heavy.tolist():
            at = np.flatnonzero(groups == group)
            before = self.seconds
            with self.running():
                update(groups[at], None if len(at) == len(groups) else at)
            self._of_groups[group] += self.seconds - before
        if rest.any():
            at = np.flatnonzero(rest)
            with self.running():
                update(groups[at], None if not len(heavy) else at)

    def of_groups(self, rows: Groups) -> pa.Array:
        """Seconds of each group, null where it was never timed apart, shape ``(groups,)``.

        A key that was light in some batches is taken to have cost as much per row there.

        Args:
            rows: of each group in all, shape ``(groups,)``.
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
