"""Which rows the next stage will find: the backlog, exactly, and what is admitted, by the rows seen so far."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain

import numpy as np

from skewless.documents.stage_report import Histogram, StageReport
from skewless.planner.placement.placement import Indices, Rows
from skewless.routing.hashing import key_slots
from skewless.routing.plan import RoutingPlan

#: A key must have been seen so often before the next wave's rows are predicted from that alone. Of the keys seen once
#: or twice most are rarer than they look, and as many were not seen at all (Good 1953): naming them would assign too
#: many rows to their tasks and too few to the others.
SEEN_ENOUGH = 8
#: Keys whose counts say how counts fall with rank.
_ENOUGH_KEYS = 32


@dataclass(frozen=True)
class ExpectedRows:
    """Rows of each heavy key, and of all other keys in each slot of the ring.

    Attributes:
        waves: the waves that the next stage admits, ``first <= wave < end``.
        wave_rows: their rows; 0 when the input is used up.
        memory: the report's histogram, the rows of older stages weighted less (see ``wave_counts.weighted``); None
            where all rows weigh alike.
        counted_part: the part of the rows that are admitted, or may be, that the report counts already: those of a
            sample, which are admitted like all others; 0 where the report's rows have been reduced.
    """

    plan: RoutingPlan
    report: StageReport
    waves: tuple[int, int]
    wave_rows: int
    memory: Histogram | None
    counted_part: float = field(default=0.0, kw_only=True)

    @property
    def queued_rows(self) -> int:
        """Rows queued in all: known before the stage runs, not predicted."""
        return self.report.backlog_rows + self.wave_rows

    @property
    def scale(self) -> float:
        """Rows admitted for each row seen so far; 0 where none was."""
        seen = self._remembered.seen_rows
        return self.wave_rows / seen if seen else 0.0

    @property
    def _remembered(self) -> Histogram:
        """The rows seen, weighted by age where that applies."""
        return self.memory or self.report.histogram

    @cached_property
    def _all_keys(self) -> tuple[list[str], Rows, Rows]:
        """The reported head keys in the order of their texts, with rows seen (weighted) and rows left over."""
        head = self._remembered.head
        texts = sorted(head)
        counts = chain.from_iterable([head[key] for key in texts])
        table = np.fromiter(counts, dtype=np.float64, count=2 * len(texts)).reshape(-1, 2)
        return texts, table[:, 0], table[:, 1]

    @cached_property
    def _discount(self) -> float:
        """Rows by which the count of a key that was seen r times overstates its frequency, on average.

        A key seen r times is more often a rare key overcounted than a frequent key undercounted. Good (1953): its
        expectation is ``(r + 1) N(r+1) / N(r)``, where N(r) is the number of keys seen r times. If counts fall with
        rank as ``rank**-z``, N(r) falls as ``r**-(1 + 1/z)``, and the expectation is about ``r - 1/z``. All keys that
        are named because they were seen often share this bias, and it adds up on the tasks that they share. z is
        estimated from the lower three quarters of the keys that were seen often. The discount is at most the
        sampling error, the square root of the count. In sum it is at most the rows of the keys that are not named:
        if every key is named, none was selected for a high count.
        """
        histogram = self._remembered
        seen = np.sort(self._all_keys[1])[::-1]
        seen = seen[seen >= SEEN_ENOUGH]
        if len(seen) < _ENOUGH_KEYS:
            return 0.0
        quarter, least = float(seen[len(seen) // 4]), float(seen[-1])
        slope = math.log(quarter / least) / math.log(4.0)
        others = histogram.seen_rows - histogram.seen_null_rows - float(seen.sum())
        most = min(math.sqrt(least), max(0.0, others) / len(seen))
        return min(most, 1.0 / slope) if slope > 0 else most

    @cached_property
    def _fresh(self) -> Rows:
        """Rows predicted of each reported head key, per row seen so far of all keys."""
        seen = self._all_keys[1]
        # Of the rows that are counted already nothing is to be guessed.
        discount = self._discount * (1.0 - self.counted_part)
        return np.maximum(0.0, seen - np.where(seen >= SEEN_ENOUGH, discount, 0.0))

    @cached_property
    def _order(self) -> Indices:
        """The numbers of the keys to be placed, heaviest first, ties by text."""
        texts, seen, left = self._all_keys
        expected = left + self.scale * self._fresh
        pinned = np.fromiter(map(self.plan.head.__contains__, texts), dtype=bool, count=len(texts))
        named = (expected > 0) & ((seen >= SEEN_ENOUGH) | (self.scale * seen <= left) | pinned)
        heaviest = np.argsort(-expected, kind="stable")
        order: Indices = heaviest[named[heaviest]]
        return order

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """The head keys to be placed one by one, heaviest first, ties by key text.

        A key is placed if rows of it are expected and their number is known well enough: it was seen often, or most
        of its rows wait in the backlog. So is a key that the plan places already. All arrays over the head are in
        this order.
        """
        texts = self._all_keys[0]
        return tuple([texts[number] for number in self._order.tolist()])

    @property
    def by_text(self) -> Indices:
        """The numbers of ``keys`` in the order of their texts."""
        return np.argsort(self._order)

    @cached_property
    def head_backlog(self) -> Rows:
        """Backlog rows of each head key, shape ``(len(keys),)``."""
        return self._all_keys[2][self._order]

    @cached_property
    def head_wave(self) -> Rows:
        """Rows of each head key among those admitted, shape ``(len(keys),)``."""
        rows: Rows = self.scale * self._fresh[self._order]
        return rows

    @cached_property
    def head_rows(self) -> Rows:
        """Rows of each head key in the next stage, shape ``(len(keys),)``, descending."""
        return self.head_backlog + self.head_wave

    @cached_property
    def _light_head(self) -> tuple[Indices, Rows, Rows]:
        """Slots, seen rows and backlog rows of the head keys that are left to the ring."""
        texts, seen, left = self._all_keys
        light = np.ones(len(texts), dtype=bool)
        light[self._order] = False
        light &= (seen > 0) | (left > 0)
        numbers = np.flatnonzero(light)
        some = [texts[number] for number in numbers.tolist()]
        return key_slots(some, 1 << self.plan.ring.ring_bits), seen[numbers], left[numbers]

    @property
    def null_wave(self) -> float:
        """Admitted rows without a key; all admitted rows if nothing has been seen yet."""
        histogram = self._remembered
        return self.scale * histogram.seen_null_rows if histogram.seen_rows else float(self.wave_rows)

    @property
    def null_backlog(self) -> int:
        """Backlog rows without a key."""
        return self.report.histogram.backlog_null_rows

    @cached_property
    def tail_backlog(self) -> Rows:
        """Backlog rows of all other keys, per slot of the ring."""
        slots, _, left = self._light_head
        tail = np.array(self.report.histogram.backlog_tail, dtype=np.float64)
        return tail + np.bincount(slots, weights=left, minlength=len(tail))

    @cached_property
    def tail_wave(self) -> Rows:
        """Rows of all other keys among those admitted, per slot of the ring, with those discounted from named keys."""
        slots, seen, _ = self._light_head
        tail = np.array(self._remembered.seen_tail, dtype=np.float64)
        unseen = float((self._all_keys[1] - self._fresh)[self._order].sum()) / len(tail)
        rows: Rows = self.scale * (tail + unseen + np.bincount(slots, weights=seen, minlength=len(tail)))
        return rows
