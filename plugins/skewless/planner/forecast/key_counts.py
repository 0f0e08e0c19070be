"""How many different keys are expected among so many rows, from the keys of a sample or of a stage."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from skewless.documents.stage_report import StageReport


@dataclass(frozen=True, eq=False)
class KeyCounts:
    """How often the keys of a sample of the rows occur.

    Attributes:
        counts: rows of each key of the sample, at least 1, in any order, shape ``(keys,)``.
    """

    counts: npt.NDArray[np.float64]

    @classmethod
    def of_report(cls, report: StageReport) -> KeyCounts:
        """The keys of a stage that was routed: its head one by one, all others as if they were alike."""
        histogram = report.histogram
        head = np.array([seen for seen, _ in histogram.head.values()], dtype=np.float64)
        keys = sum(load.states for load in report.tasks) if histogram.keys is None else histogram.keys
        tail = max(0, keys - len(head))
        rest = histogram.seen_rows - float(head.sum())
        others = np.full(tail, max(1.0, rest / tail)) if tail and rest > 0 else np.zeros(0)
        return cls(np.concatenate([head[head > 0], others]))

    @property
    def rows(self) -> float:
        """Rows of the sample."""
        return float(self.counts.sum())

    def keys_in(self, rows: float) -> float:
        """Different keys that are expected among so many rows.

        Fewer than the sample has: those that a part of the sample is expected to show (rarefaction,
        Hurlbert 1971, drawn with replacement). More: the curve is continued as the power of the rows
        that it follows over the second half of the sample (Heaps' law).
        """
        sample = self.rows
        if not sample or rows <= 0:
            return 0.0
        if rows <= sample:
            return self._rarefied(rows)
        whole, half = self._rarefied(sample), self._rarefied(sample / 2.0)
        # A key seen in every sample has been found; what grows is the number of the others.
        power = max(0.0, math.log2(whole / half)) if half else 1.0
        return float(min(rows, whole * (rows / sample) ** power))

    def _rarefied(self, rows: float) -> float:
        missed = np.exp(rows * np.log1p(-np.minimum(self.counts / self.rows, 1.0 - 1e-12)))
        return float((1.0 - missed).sum())
