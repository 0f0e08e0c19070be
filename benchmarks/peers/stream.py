"""A stream as the peers see it: its keys, how many tasks there are, how many sources send it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

#: The task of each message, shape (messages,).
Targets = npt.NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class Stream:
    """Messages in order of arrival, message t being sent by source t mod ``sources``."""

    #: Keys as 64 bits to hash, shape (messages,).
    keys: npt.NDArray[np.uint64]
    #: Keys as numbers 0..``distinct``-1 to index tables with, shape (messages,).
    ids: npt.NDArray[np.int64]
    #: Number of distinct keys.
    distinct: int
    #: Number W of tasks.
    tasks: int
    #: Number S of sources.
    sources: int
    #: Seed of the hash functions.
    seed: np.uint64

    @classmethod
    def of(cls, keys: npt.NDArray[np.int64], tasks: int, sources: int = 5, seed: int = 0) -> Self:
        """Number the keys of a stream.

        Args:
            keys: Keys in order of arrival, shape (messages,), at least one.
            tasks: Number of tasks, at least one.
            sources: Number of sources, at least one.
            seed: Seed of the hash functions, at least 0.

        Raises:
            ValueError: There is no message, no task or no source.
        """
        if keys.ndim != 1 or not keys.size or tasks < 1 or sources < 1:
            raise ValueError(
                f"a stream needs a flat array of keys, a task and a source; got keys of shape {keys.shape}, "
                f"{tasks} tasks, {sources} sources"
            )
        ids, distinct = _numbered(keys)
        words = np.ascontiguousarray(keys, dtype=np.int64).view(np.uint64)
        return cls(words, ids, distinct, tasks, sources, np.uint64(seed))


def _numbered(keys: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], int]:
    """Number keys in ascending order: the numbers, shape (messages,), and how many there are."""
    if keys.min() < 0 or keys.max() > 10 * keys.size + 10_000_000:
        distinct_keys, ids = np.unique(keys, return_inverse=True)
        return ids, distinct_keys.size
    # Small keys need no sort: ten million messages are numbered in a tenth of the time.
    present = np.zeros(keys.max() + 1, dtype=np.bool_)
    present[keys] = True
    numbers = np.cumsum(present) - 1
    return numbers[keys], int(numbers[-1]) + 1
