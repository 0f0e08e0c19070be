"""A stream as the peers see it: its keys, how many tasks there are, how many sources send it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from benchmarks.workloads import numbered

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

        Raises:
            ValueError: There is no message, no task or no source.
        """
        if keys.ndim != 1 or not keys.size or tasks < 1 or sources < 1:
            raise ValueError(
                f"a stream needs a flat array of keys, a task and a source; got keys of shape {keys.shape}, "
                f"{tasks} tasks, {sources} sources"
            )
        distinct, ids = numbered(keys)
        words = np.ascontiguousarray(keys, dtype=np.int64).view(np.uint64)
        return cls(words, ids, len(distinct), tasks, sources, np.uint64(seed))
