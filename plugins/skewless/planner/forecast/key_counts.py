"""How many different keys are expected among so many rows, from the keys of a sample or of a stage."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from skewless.documents.stage_report import StageReport

#: A key that was sampled more often than this is in any rows that are at least as many as the sample.
_RARE = 40.0
#: Rates of the grid, and the lowest of them in rows of a key among all rows: a key may also happen to have a row.
_RATES, _LEAST_ROWS = 64, 1 / 16
#: Steps of the fit at most, some ten milliseconds. It ends once the counts are explained up to their own noise.
_STEPS = 1000
#: The steepest growth of the number of keys that is taken for a start: as this power of the rows.
_STEEPEST = 0.95


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

        Fewer rows than the sample has: the keys that a part of the sample is expected to show (rarefaction, Hurlbert
        1971, drawn with replacement). More: the keys that were not sampled are found from how many were sampled once,
        twice and so on (``_unsampled``).
        """
        sample = self.rows
        if not sample or rows <= 0:
            return 0.0
        if rows <= sample:
            return self._rarefied(rows)
        return float(min(rows, self._unsampled(sample / rows)))

    def _rarefied(self, rows: float) -> float:
        missed = np.exp(rows * np.log1p(-np.minimum(self.counts / self.rows, 1.0 - 1e-12)))
        return float((1.0 - missed).sum())

    def _unsampled(self, part: float) -> float:
        """All keys that are expected, those that the sample has not shown among them.

        The sampled rows of a key are Poisson, and the rates of the keys are a mixture of a grid of rates, fitted to the
        counts by expectation maximization (the nonparametric maximum likelihood of Norris & Pollock 1998). The counts
        say little of rates far below one, and there the fit stays at its first guess: keys as a power law has them
        (Zipf), by what their singles and doubles say of its exponent (Gnedin, Hansen & Pitman 2007).

        Args:
            part: what part of all rows the sample is.
        """
        rare = self.counts[self.counts <= _RARE]
        if not len(rare):
            return float(len(self.counts))
        seen, keys = np.unique(rare, return_counts=True)
        rates = np.geomspace(part * _LEAST_ROWS, 2.0 * _RARE, _RATES)
        shown = -np.expm1(-rates)  # the part of the keys of a rate that a sample shows at all
        factorials = np.array([[math.lgamma(one + 1.0)] for one in seen])
        likely = np.exp(np.outer(seen, np.log(rates)) - rates - factorials) / shown
        once, twice = float(keys[seen < 1.5].sum()), float(keys[(seen >= 1.5) & (seen < 2.5)].sum())
        exponent = min(_STEEPEST, max(0.0, 1.0 - 2.0 * twice / once)) if once else 0.0
        weights = np.minimum(1.0, rates ** (1.0 - exponent))
        weights /= weights.sum()
        for _ in range(_STEPS):
            expected = len(rare) * (likely @ weights)
            if float(((keys - expected) ** 2 / expected).sum()) <= len(keys):
                break
            weights *= (keys / expected) @ likely
        found = len(rare) * weights / shown * -np.expm1(-rates / part)
        return float(len(self.counts) - len(rare) + found.sum())
