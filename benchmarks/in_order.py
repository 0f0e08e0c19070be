"""Waves that come in the order of the input, and are no samples: ``python -m benchmarks.in_order``.

Benchmark B4 (b) to (d), in the simulation with the real planner and no sample of the keys: hot keys that
change over the input, a new hot key in each wave, a hot key that begins late.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.staged import WAVES, simulate
from benchmarks.workloads import Keys, drift, zipf

SEED = 0
EVEN = (1.0,) * 10
#: Part of the rows that a hot key has, while it is hot.
HOT = 0.3


@dataclass(frozen=True)
class Case:
    """One stream in order.

    Attributes:
        row: of the benchmark.
        words: what it is.
        aim: largest loads over the ideal, at most; None where there is only a figure.
        tasks: W.
        waves: relative sizes of the waves.
        mergeable: whether a key may be split.
    """

    row: str
    words: str
    aim: float | None
    tasks: int
    waves: Sequence[float]
    mergeable: bool

    @property
    def keys(self) -> Keys:
        return STREAMS[self.words](self.waves)

    def measure(self, **routing: Any) -> tuple[float, float, int]:
        """Largest loads over max(total / W, heaviest key that may not be split), rows forwarded, and stages."""
        keys = self.keys
        outcome, _ = simulate(
            keys, self.tasks, "adaptive", self.waves, in_order=True, mergeable=self.mergeable, **routing
        )
        fair = len(keys) / self.tasks
        heaviest = 0.0 if self.mergeable else float(np.unique(keys, return_counts=True)[1].max())
        ideal = max(fair, heaviest)
        return outcome.makespan_over_ideal * fair / ideal, outcome.rows_forwarded / len(keys), outcome.stages


def drifting(waves: Sequence[float]) -> Keys:
    return drift(100_000, 1.4, 1_000_000, 10, SEED)


def new_hot_keys(waves: Sequence[float]) -> Keys:
    """A new hot key in each wave."""
    keys, random = zipf(20_000, 1.0, 200_000, SEED), np.random.default_rng(SEED)
    ends = np.cumsum(waves) / sum(waves) * len(keys)
    wave = np.searchsorted(ends, np.arange(len(keys)), side="right")
    return np.where(random.random(len(keys)) < HOT, 1_000_000 + wave, keys)


def late_hot_key(waves: Sequence[float]) -> Keys:
    """A hot key that begins half way."""
    keys, random = zipf(20_000, 1.0, 200_000, SEED), np.random.default_rng(SEED)
    late = (np.arange(len(keys)) >= len(keys) // 2) & (random.random(len(keys)) < HOT)
    return np.where(late, 1_000_000, keys)


def sorted_keys(waves: Sequence[float]) -> Keys:
    """Sorted by key."""
    return np.sort(np.random.default_rng(SEED).permutation(20_001)[zipf(20_000, 1.0, 200_000, SEED)])


STREAMS = {
    "hot keys change ten times": drifting, "a new hot key in each wave": new_hot_keys,
    "a hot key begins half way": late_hot_key, "sorted by key": sorted_keys,
}  # fmt: skip


def cases() -> Iterator[Case]:
    drift_words, new, late, ordered = STREAMS
    for waves in (WAVES, EVEN):
        for tasks in (8, 50, 100):
            yield Case("b", drift_words, 1.08, tasks, waves, True)
    for waves in (WAVES, EVEN):
        for tasks in (8, 32):
            yield Case("c", new, 1.15, tasks, waves, True)
            yield Case("c", new, None, tasks, waves, False)
            yield Case("d", late, 1.10, tasks, waves, False)
            yield Case("late", late, None, tasks, waves, True)
            yield Case("sorted", ordered, None, tasks, waves, True)
            yield Case("sorted", ordered, None, tasks, waves, False)


if __name__ == "__main__":
    for case in cases():
        ratio, forwarded, stages = case.measure()
        print(
            f"{case.row:7} W={case.tasks:3} waves={len(case.waves):2} {'split' if case.mergeable else 'whole'} {ratio:.3f} fwd {forwarded:.1%} stages {stages} {case.aim or ''} {'MISSED' if case.aim and ratio > case.aim else ''}"
        )
