"""A stream as the peers see it, and the figures a policy is judged by, from where each message went."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from benchmarks.outcome import Outcome, imbalance, makespan_over_ideal
from benchmarks.peers.candidates import compiled
from benchmarks.workloads import numbered

#: The task of each message, shape (messages,).
Targets = npt.NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class Stream:
    """Messages in order of arrival."""

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
    #: The source of each message, shape (messages,), where they do not take turns.
    uneven: npt.NDArray[np.int32] | None = None

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

    @property
    def senders(self) -> npt.NDArray[np.int32]:
        """The source of each message: t mod ``sources``, unless it is said."""
        return (np.arange(self.keys.size) % self.sources).astype(np.int32) if self.uneven is None else self.uneven


#: Number of points in time at which I(t) is taken.
SAMPLES = 1000
#: Fractional part of the golden ratio: its multiples, modulo 1, are spread most evenly.
_GOLDEN_FRACTION = 0.6180339887498949


def sample_points(messages: int, samples: int = SAMPLES) -> npt.NDArray[np.int64]:
    """Points in time that cover a stream evenly, one in each of ``samples`` equal parts, at no fixed distance.

    A fixed distance that tasks times sources divides would see a round robin only when it is level.

    Args:
        messages: Length of the stream.
        samples: Number of parts.

    Returns:
        Ascending counts of messages placed, each in 1..``messages``, shape (at most samples,).
    """
    parts = np.arange(samples)
    times = (parts + parts * _GOLDEN_FRACTION % 1.0) * messages / samples
    return np.unique(np.floor(times).astype(np.int64) + 1)


def measure(policy: str, stream: Stream, targets: Targets) -> Outcome:
    """Judge a policy of one pass, which forwards nothing.

    Args:
        policy: Its name.
        stream: What it placed.
        targets: Where it placed each message, shape (messages,).
    """
    points = sample_points(targets.size)
    loads, pairs, average = _replay(stream.ids, stream.distinct, targets, stream.tasks, points)
    return Outcome(
        policy=policy,
        tasks=stream.tasks,
        messages=targets.size,
        makespan_over_ideal=makespan_over_ideal(loads),
        imbalance_fraction=average / targets.size,
        imbalance_final=imbalance(loads) / targets.size,
        states_per_key=pairs / stream.distinct,
        rows_forwarded=0,
        stages=1,
    )


@compiled
def _replay(
    ids: npt.NDArray[np.int64], distinct: int, targets: Targets, tasks: int, points: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], int, float]:
    """Place all messages: the final loads, the distinct (key, task) pairs, and the mean of I(t) over ``points``."""
    loads = np.zeros(tasks, dtype=np.int64)
    # One bit per pair, so a million keys on a thousand tasks fit into 125 MB.
    row_bytes = (tasks + 7) // 8
    seen = np.zeros(distinct * row_bytes, dtype=np.uint8)
    pairs, total, sample = 0, 0.0, 0
    for message in range(targets.shape[0]):
        target = targets[message]
        loads[target] += 1
        byte, bit = ids[message] * row_bytes + (target >> 3), np.uint8(1 << (target & 7))
        if not seen[byte] & bit:
            seen[byte] |= bit
            pairs += 1
        if sample < points.shape[0] and message + 1 == points[sample]:
            total += loads.max() - (message + 1) / tasks
            sample += 1
    return loads, pairs, total / points.shape[0]
