"""A sample of the input's keys, taken before any stage: what the first plan and the engine are chosen from."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from skewless.columns import exact_sum, numbers
from skewless.documents.stage_report import LONGEST_HEAD_KEY, Histogram, StageReport
from skewless.routing.hashing import key_hashes

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
    """How often the keys of a sample of the rows occur: at least once each, in any order."""

    counts: npt.NDArray[np.float64]

    @classmethod
    def of_report(cls, report: StageReport) -> "KeyCounts":
        """The keys of a stage that was routed: its head one by one, all others as if they were alike."""
        histogram = report.histogram
        head = np.array([seen for seen, _ in histogram.head.values()], dtype=np.float64)
        keys = exact_sum(numbers(report.tasks, "states")) if histogram.keys is None else histogram.keys
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
            missed = np.exp(rows * np.log1p(-np.minimum(self.counts / sample, 1.0 - 1e-12)))
            return float((1.0 - missed).sum())
        return float(min(rows, self._unsampled(sample / rows)))

    def _unsampled(self, part: float) -> float:
        """All keys that are expected, those that the sample has not shown among them.

        The sampled rows of a key are Poisson, and the rates of the keys are a mixture of a grid of rates, fitted to the
        counts by expectation maximization (the nonparametric maximum likelihood of Norris & Pollock 1998). The counts
        say little of rates far below one, and there the fit stays at its first guess: keys as a power law has them
        (Zipf), by what their singles and doubles say of its exponent (Gnedin, Hansen & Pitman 2007).
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


#: A key that was sampled less often than this is left to the ring, and says nothing of its slot: of such
#: keys there are about as many in every slot.
NAMED_FROM = 2


@dataclass(frozen=True, eq=False)
class KeySample:
    """How often keys occur in a sample of the rows: at least once each, in any order."""

    counts: npt.NDArray[np.int64]
    texts: Sequence[str | None] | None = None
    """The key text of each, None for the null key; None altogether where the texts are not known."""
    spread: float = 1.0
    """How much more the sample may be wrong than one of as many rows drawn one by one; see ``unit_spread``."""

    @property
    def key_counts(self) -> KeyCounts:
        """The counts alone."""
        return KeyCounts(self.counts.astype(np.float64))

    def histogram(self, ring_bits: int, head_limit: int) -> Histogram | None:
        """The sample as if a stage had seen it; None where the texts of its keys are not known."""
        if self.texts is None or not len(self.counts):
            return None
        slots = 1 << ring_bits
        tail = np.zeros(slots, dtype=np.int64)
        head: dict[str, tuple[int, int]] = {}
        null = self.texts.index(None) if None in self.texts else -1
        nulls = int(self.counts[null]) if null >= 0 else 0
        often = self.counts >= NAMED_FROM
        rare = int(self.counts[~often].sum()) - (nulls if nulls < NAMED_FROM else 0)
        on_ring: list[int] = []
        for number in np.flatnonzero(often)[np.argsort(-self.counts[often], kind="stable")].tolist():
            key = self.texts[number]
            if key is None:
                continue
            if len(head) < head_limit and len(key) <= LONGEST_HEAD_KEY:
                head[key] = (int(self.counts[number]), 0)
            else:
                on_ring.append(number)
        raw = [str(self.texts[number]).encode() for number in on_ring]
        ends = np.cumsum([0, *map(len, raw)])
        np.add.at(
            tail,
            key_hashes(np.frombuffer(b"".join(raw), np.uint8), ends) >> np.uint32(32 - ring_bits),
            self.counts[on_ring],
        )
        tail += rare // slots
        tail[: rare % slots] += 1
        return Histogram(
            seen_rows=int(self.counts.sum()), seen_null_rows=nulls, backlog_null_rows=0,
            head=dict(sorted(head.items())), seen_tail=tail, backlog_tail=np.zeros_like(tail),
        )  # fmt: skip


def unit_spread(counts: npt.NDArray[np.int64], rows: npt.NDArray[np.int64], part: float) -> float:
    """The factor, at least 1, by which the variance of a sample of stretches exceeds that of rows drawn one by one.

    Rows that lie together are alike: of a key that is hot for an hour, a source partition has many or none. What a
    sample of partitions taken evenly over the listing may miss is what changes from one of them to the next: the
    variance of those differences, over that of Poisson variables, is the design effect of a systematic sample (Kish
    1965; Wolter 1985, successive differences). Partitions that were all looked at leave no such error.

    ``counts`` are the sampled rows of some heavy keys in each partition, in the order of the listing, shape
    ``(partitions, keys)``; ``rows`` those of all keys; ``part`` of the input's partitions were sampled.
    """
    partitions, keys = counts.shape
    if partitions < 2 or not keys:
        return 1.0
    expected = np.maximum(1e-9, np.outer(rows, counts.sum(axis=0) / max(1, int(rows.sum()))))
    steps = np.diff(counts - expected, axis=0)
    effect = float((steps**2 / (expected[1:] + expected[:-1])).mean())
    return float(1.0 + max(0.0, effect - 1.0) * (1.0 - min(1.0, part)))
