"""Which rows the next stage will find, in which buckets, and what a row costs, as the last report measured them.

A report counts the tail by slot of the ring, and a bucket is another hash. With many light keys buckets are alike. With
a few hundred of middling weight one may have twice the rows of another, and keys that are not named stay unseen. What
tasks had queued tells how the rows to come will be divided, and what they left over how the backlog is.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from skewless.documents.stage_report import Histogram, StageReport
from skewless.planner.placement.placement import Indices, Rows, sums
from skewless.routing.hashing import key_slots
from skewless.routing.plan import RoutingPlan
from skewless.routing.ring import MOST_BUCKETS


@dataclass(frozen=True, eq=False)
class BucketParts:
    """For each reducer of the reported plan the part of its tail in each of the finest buckets there may be."""

    plan: RoutingPlan
    wave: Rows
    """Of rows to come, shape ``(largest reducer + 1, MOST_BUCKETS)``."""
    backlog: Rows
    """Of rows left over, same shape."""

    @classmethod
    def measured(cls, plan: RoutingPlan, queued: Rows, left: Rows) -> "BucketParts":
        """From the rows of each task that were queued and left over, but named keys and null rows, shape ``(tasks,)``.

        What came differs by chance as well. Of that difference the part is believed by which its squares exceed a
        sample's (James and Stein 1961). What was left over is what it is.
        """
        factors = plan.task_table[:, 2]
        fair = _whole(plan, queued) / factors
        split = (factors > 1) & (fair > 0)
        squares = (queued - fair)[split] ** 2 / (fair * (1.0 - 1.0 / factors))[split]
        chance = float(squares.mean()) if len(squares) else 0.0
        believed = max(0.0, 1.0 - 1.0 / chance) if chance else 0.0
        return cls(plan, _finest(plan, queued, believed), _finest(plan, left, 1.0))

    def tail(self, plan: RoutingPlan, wave: Rows, backlog: Rows) -> Rows:
        """Rows of each task of a plan, given those of each slot of the ring; a slot that moves keeps its buckets."""
        came, goes = self.plan.ring.slot_owners, plan.ring.slot_owners
        reducers = np.zeros((max(plan.ring.reducers) + 1, MOST_BUCKETS))
        for bucket in range(MOST_BUCKETS):
            rows = wave * self.wave[came, bucket] + backlog * self.backlog[came, bucket]
            reducers[:, bucket] = np.bincount(goes, weights=rows, minlength=len(reducers))
        found = np.zeros(len(plan.tasks))
        owners, buckets, factors = plan.task_table.T
        for bucket in range(MOST_BUCKETS):
            # Bucket b of f is made up of the buckets b, b + f, b + 2 f, ... of more of them.
            found += np.where(bucket % factors == buckets, reducers[owners, bucket], 0.0)
        return found


def _whole(plan: RoutingPlan, rows: Rows) -> Rows:
    reducers = plan.task_table[:, 0]
    return sums(reducers, rows, int(reducers.max()) + 1)[reducers]


def _finest(plan: RoutingPlan, rows: Rows, believed: float) -> Rows:
    reducers, buckets, factors = plan.task_table.T
    fair = _whole(plan, rows) / factors
    off = np.divide(rows - fair, fair, out=np.zeros(len(rows)), where=fair > 0)
    part = (1.0 + believed * off) / MOST_BUCKETS
    found = np.zeros((int(reducers.max()) + 1, MOST_BUCKETS))
    for bucket in range(MOST_BUCKETS):
        mine = bucket % factors == buckets
        found[reducers[mine], bucket] = part[mine]
    return found


#: Costs that differ by less than this are noise, and are taken to be alike.
ALIKE = 0.15
#: Keys whose rows cost unlike the average matter if they have more than this part of the rows.
FEW_UNLIKE = 0.02


@dataclass(frozen=True)
class RowCosts:
    """Costs of rows, in rows of average cost, by the report of the last stage."""

    report: StageReport

    @cached_property
    def mean_seconds(self) -> float | None:
        """Seconds for a row of average cost; None if rows were not measured, or cost about the same."""
        histogram = self.report.histogram
        if not histogram.head_seconds or histogram.tail_seconds is None:
            return None
        done = self.report.histogram.seen_rows - self.report.backlog_rows
        seconds = math.fsum(histogram.head_seconds.values()) + histogram.tail_seconds
        mean = seconds / done if done > 0 and seconds > 0 else None
        return mean if mean and self._unlike_part(mean, done) > FEW_UNLIKE else None

    def _unlike_part(self, mean: float, done: int) -> float:
        unlike = 0.0
        for key, seconds in self.report.histogram.head_seconds.items():
            seen, left = self.report.histogram.head.get(key, (0, 0))
            rows = seen - left
            if rows > 0 and abs(seconds / rows / mean - 1.0) > ALIKE:
                unlike += rows
        return unlike / done

    def of_keys(self, keys: Sequence[str]) -> Rows:
        """Cost of a row of each of these keys, which the report names; others cost as the tail does."""
        costs = np.full(len(keys), self.tail_cost)
        mean = self.mean_seconds
        if mean is None:
            return costs
        histogram = self.report.histogram
        for at, key in enumerate(keys):
            seen, left = histogram.head[key]
            if seen > left and key in histogram.head_seconds:
                costs[at] = histogram.head_seconds[key] / (seen - left) / mean
        return costs

    @cached_property
    def tail_cost(self) -> float:
        """Cost of a row of any other key, in rows of average cost."""
        mean, histogram = self.mean_seconds, self.report.histogram
        if mean is None or histogram.tail_seconds is None:
            return 1.0
        measured = set(histogram.head_seconds)
        seen = sum(rows for key, (rows, _) in histogram.head.items() if key in measured)
        left = sum(rows for key, (_, rows) in histogram.head.items() if key in measured)
        done = (histogram.seen_rows - seen) - (self.report.backlog_rows - left)
        if done <= 0:
            return 1.0
        return histogram.tail_seconds / done / mean


#: A key must have been seen so often before the next wave's rows are predicted from that alone. Of the keys seen once
#: or twice most are rarer than they look, and as many were not seen at all (Good 1953): naming them would assign too
#: many rows to their tasks and too few to the others.
SEEN_ENOUGH = 8
#: Keys whose counts say how counts fall with rank.
_ENOUGH_KEYS = 32


@dataclass(frozen=True)
class ExpectedRows:
    """Rows of each heavy key, and of all other keys in each slot of the ring."""

    plan: RoutingPlan
    report: StageReport
    waves: tuple[int, int]
    """The waves that the next stage admits, ``first <= wave < end``."""
    wave_rows: int
    """Their rows; 0 when the input is used up."""
    memory: Histogram | None
    """The report's histogram, the rows of older stages weighted less (see ``wave_counts.weighted``); None where all
    rows weigh alike."""
    counted_part: float = field(default=0.0, kw_only=True)
    """The part of the rows that are admitted, or may be, that the report counts already: those of a sample, which are
    admitted like all others; 0 where the report's rows have been reduced."""

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
        return self.memory or self.report.histogram

    @cached_property
    def _all_keys(self) -> tuple[list[str], Rows, Rows]:
        """The reported head keys in the order of their texts, with rows seen (weighted) and rows left over."""
        given = list(self._remembered.head)
        order = sorted(range(len(given)), key=given.__getitem__)
        table = self._remembered.head_counts[order].astype(np.float64)
        return list(map(given.__getitem__, order)), table[:, 0], table[:, 1]

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
        seen = self._all_keys[1]
        # Of the rows that are counted already nothing is to be guessed.
        discount = self._discount * (1.0 - self.counted_part)
        return np.maximum(0.0, seen - np.where(seen >= SEEN_ENOUGH, discount, 0.0))

    @cached_property
    def _order(self) -> Indices:
        texts, seen, left = self._all_keys
        expected = left + self.scale * self._fresh
        pinned = np.fromiter(map(self.plan.head.__contains__, texts), dtype=bool, count=len(texts))
        named = (expected > 0) & ((seen >= SEEN_ENOUGH) | (self.scale * seen <= left) | pinned)
        heaviest = np.argsort(-expected, kind="stable")
        return np.asarray(heaviest[named[heaviest]])

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """The head keys to be placed one by one, heaviest first, ties by key text.

        A key is placed if rows of it are expected and their number is known well enough: it was seen often, or most
        of its rows wait in the backlog. So is a key that the plan places already. All arrays over the head are in
        this order.
        """
        texts = self._all_keys[0]
        return tuple(map(texts.__getitem__, self._order.tolist()))

    @property
    def by_text(self) -> Indices:
        """The numbers of ``keys`` in the order of their texts."""
        numbers = np.full(len(self._all_keys[0]), -1)
        numbers[self._order] = np.arange(len(self._order))
        return numbers[numbers >= 0]

    @cached_property
    def head_backlog(self) -> Rows:
        """Backlog rows of each head key, shape ``(len(keys),)``."""
        return self._all_keys[2][self._order]

    @cached_property
    def head_wave(self) -> Rows:
        """Rows of each head key among those admitted, shape ``(len(keys),)``."""
        return np.asarray(self.scale * self._fresh[self._order])

    @cached_property
    def head_rows(self) -> Rows:
        """Rows of each head key in the next stage, shape ``(len(keys),)``, descending."""
        return self.head_backlog + self.head_wave

    @cached_property
    def _light_head(self) -> tuple[Indices, Rows, Rows]:
        texts, seen, left = self._all_keys
        light = np.ones(len(texts), dtype=bool)
        light[self._order] = False
        light &= (seen > 0) | (left > 0)
        numbers = np.flatnonzero(light)
        some = list(map(texts.__getitem__, numbers.tolist()))
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
        tail += np.bincount(slots, weights=left, minlength=len(tail))
        return tail

    @cached_property
    def tail_wave(self) -> Rows:
        """Rows of all other keys among those admitted, per slot of the ring, with those discounted from named keys."""
        slots, seen, _ = self._light_head
        tail = np.array(self._remembered.seen_tail, dtype=np.float64)
        # In place, here and above: of a large ring an array that is touched for the first time costs most of all.
        tail += float((self._all_keys[1] - self._fresh)[self._order].sum()) / len(tail)
        tail += np.bincount(slots, weights=seen, minlength=len(tail))
        tail *= self.scale
        return tail
