"""A sample of the input's keys, taken before any stage: what the first plan and the engine are chosen from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from skewless.documents.stage_report import LONGEST_HEAD_KEY, Histogram
from skewless.planner.forecast.key_counts import KeyCounts
from skewless.routing.hashing import key_hashes

#: A key that was sampled less often than this is left to the ring, and says nothing of its slot: of such
#: keys there are about as many in every slot.
NAMED_FROM = 2


@dataclass(frozen=True, eq=False)
class KeySample:
    """How often keys occur in a sample of the rows.

    Attributes:
        counts: rows of each key of the sample, at least 1, in any order, shape ``(keys,)``.
        texts: the key text of each, None for the null key; None altogether where the texts are not known.
        spread: how much more the sample may be wrong than one of as many rows drawn one by one; see ``unit_spread``.
    """

    counts: npt.NDArray[np.int64]
    texts: Sequence[str | None] | None = None
    spread: float = 1.0

    @property
    def key_counts(self) -> KeyCounts:
        """The counts alone."""
        return KeyCounts(self.counts.astype(np.float64))

    def histogram(self, ring_bits: int, head_limit: int) -> Histogram | None:
        """The sample as if a stage had seen it; None where the texts of its keys are not known.

        Args:
            ring_bits: the ring has ``2**ring_bits`` slots.
            head_limit: keys that are named at most.
        """
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
            head=dict(sorted(head.items())), seen_tail=tuple(tail.tolist()), backlog_tail=(0,) * slots,
        )  # fmt: skip


def unit_spread(counts: npt.NDArray[np.int64], rows: npt.NDArray[np.int64], part: float) -> float:
    """By how much the error of a sample of whole stretches of rows exceeds that of rows drawn one by one.

    Rows that lie together are alike: of a key that is hot for an hour, a source partition has many or none. What a
    sample of partitions taken evenly over the listing may miss is what changes from one of them to the next: the
    variance of those differences, over that of Poisson variables, is the design effect of a systematic sample (Kish
    1965; Wolter 1985, successive differences). Partitions that were all looked at leave no such error.

    Args:
        counts: sampled rows of some heavy keys in each source partition, in the order of the listing, shape
            ``(partitions, keys)``.
        rows: sampled rows of each partition, of all keys, shape ``(partitions,)``.
        part: which part of the input's partitions was sampled.

    Returns:
        The factor of the variance, at least 1.
    """
    partitions, keys = counts.shape
    if partitions < 2 or not keys:
        return 1.0
    expected = np.maximum(1e-9, np.outer(rows, counts.sum(axis=0) / max(1, int(rows.sum()))))
    steps = np.diff(counts - expected, axis=0)
    effect = float((steps**2 / (expected[1:] + expected[:-1])).mean())
    return float(1.0 + max(0.0, effect - 1.0) * (1.0 - min(1.0, part)))
