"""What the next stage will find queued, predicted from the last report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import numpy as np
import numpy.typing as npt

from skewless.job import Job
from skewless.routing_plan import WHOLE_SHARE, RoutingPlan, Shares
from skewless.stage_report import StageReport

Rows = npt.NDArray[np.float64]

#: A key must have been seen so often before the next wave's rows are foretold from that alone.
#: Of the keys seen once or twice most are rarer than they look, and as many were not seen at
#: all (Good 1953): naming them would lay too much on their tasks and too little on the others.
SEEN_ENOUGH = 8


@dataclass(frozen=True)
class Forecast:
    """Rows queued in the next stage: the backlog, exactly, and the next wave, by the rows seen so far.

    Attributes:
        plan: the plan of the stage that was reported.
        report: its report.
        wave_rows: rows of the next wave; 0 when the input is used up.
    """

    plan: RoutingPlan
    report: StageReport
    wave_rows: int

    @classmethod
    def after(cls, job: Job, plan: RoutingPlan, report: StageReport) -> Forecast:
        """The forecast for the stage after ``report``."""
        return cls(plan=plan, report=report, wave_rows=job.wave_rows(report.stage + 1))

    @property
    def queued_rows(self) -> int:
        """Rows queued in all: known before the stage runs, not predicted."""
        return self.report.backlog_rows + self.wave_rows

    @property
    def scale(self) -> float:
        """Rows of the next wave for each row seen so far; 0 where none was."""
        seen = self.report.histogram.seen_rows
        return self.wave_rows / seen if seen else 0.0

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """The head keys to be placed one by one, heaviest first, ties by key text.

        Those of which rows are expected, and whose number is known well enough: from having been
        seen often, or because most of it waits in the backlog. It is the order of all arrays over
        the head.
        """
        scale = self.scale
        expected = {
            key: left + scale * seen
            for key, (seen, left) in self.report.histogram.head.items()
            if left + scale * seen and (seen >= SEEN_ENOUGH or scale * seen <= left)
        }
        return tuple(sorted(expected, key=lambda key: (-expected[key], key)))

    @cached_property
    def _light_head(self) -> tuple[npt.NDArray[np.int64], Rows, Rows]:
        """Slots, seen rows and backlog rows of the head keys that are left to the ring."""
        named = set(self.keys)
        light = [(self.plan.ring.slot_of(key), *rows) for key, rows in self.report.histogram.head.items()
                 if key not in named and any(rows)]  # fmt: skip
        table = np.array(light, dtype=np.int64).reshape(-1, 3)
        return table[:, 0], table[:, 1].astype(np.float64), table[:, 2].astype(np.float64)

    @cached_property
    def head_backlog(self) -> Rows:
        """Backlog rows of each head key, shape ``(len(keys),)``."""
        head = self.report.histogram.head
        return np.array([head[key][1] for key in self.keys], dtype=np.float64)

    @cached_property
    def head_wave(self) -> Rows:
        """Rows of each head key in the next wave, shape ``(len(keys),)``."""
        head = self.report.histogram.head
        return self.scale * np.array([head[key][0] for key in self.keys], dtype=np.float64)

    @cached_property
    def head_rows(self) -> Rows:
        """Rows of each head key in the next stage, shape ``(len(keys),)``, descending."""
        return self.head_backlog + self.head_wave

    @property
    def null_wave(self) -> float:
        """Rows of the next wave without a key; all of it where nothing has been seen to go by."""
        histogram = self.report.histogram
        return self.scale * histogram.seen_null_rows if histogram.seen_rows else float(self.wave_rows)

    @cached_property
    def tail_backlog(self) -> Rows:
        """Backlog rows of all other keys, per slot of the ring."""
        slots, _, left = self._light_head
        tail = np.array(self.report.histogram.backlog_tail, dtype=np.float64)
        return tail + np.bincount(slots, weights=left, minlength=len(tail))

    @cached_property
    def tail_wave(self) -> Rows:
        """Rows of all other keys in the next wave, per slot of the ring."""
        slots, seen, _ = self._light_head
        tail = np.array(self.report.histogram.seen_tail, dtype=np.float64)
        rows: Rows = self.scale * (tail + np.bincount(slots, weights=seen, minlength=len(tail)))
        return rows

    @cached_property
    def shares_now(self) -> dict[str, Shares]:
        """Where each head key of this forecast goes under the plan of the reported stage."""
        head, tail_task = self.plan.head, self.plan.tail_task
        return {key: head.get(key) or ((tail_task(key), WHOLE_SHARE),) for key in self.keys}

    def tail_rows(self, plan: RoutingPlan) -> Rows:
        """Tail and null rows of each task under a plan's ring, shape ``(tasks,)``."""
        return _tail(plan, self.tail_backlog + self.tail_wave, self.report.histogram.backlog_null_rows + self.null_wave)

    def loads(self, plan: RoutingPlan, shares: Mapping[str, Shares]) -> Rows:
        """Predicted rows of each task under a plan that places the head keys by ``shares``, shape ``(tasks,)``."""
        return self.tail_rows(plan) + self._head(plan, shares, self.head_rows)

    def loads_unchanged(self) -> Rows:
        """Predicted rows of each task if nothing moves: the backlog stays exactly where it is.

        Head keys of the plan that are no head keys of the forecast are counted on the ring: they
        are too light to have been reported one by one.
        """
        backlog = np.array([load.backlog_rows for load in self.report.tasks], dtype=np.float64)
        wave = _tail(self.plan, self.tail_wave, self.null_wave)
        return backlog + wave + self._head(self.plan, self.shares_now, self.head_wave)

    def forwarded_rows(self, shares: Mapping[str, Shares]) -> float:
        """Backlog rows that a change of the head's shares moves to another task, expected.

        With new shares comes a new salt, so rows of split keys and rows without a key are drawn
        anew: a row stays with the probability that its old and its new draw name the same task.
        """
        moved = 0.0
        for key, rows in zip(self.keys, self.head_backlog.tolist(), strict=True):
            if not rows:
                continue
            before = self.shares_now[key]
            if len(before) == 1 and before == shares[key]:
                continue
            after = dict(shares[key])
            stay = sum(weight * after.get(task, 0) for task, weight in before) / WHOLE_SHARE**2
            moved += rows * (1.0 - stay)
        return moved + self.report.histogram.backlog_null_rows * (1.0 - 1.0 / len(self.plan.tasks))

    def _head(self, plan: RoutingPlan, shares: Mapping[str, Shares], rows: Rows) -> Rows:
        """Rows of each task that come from head keys, shape ``(tasks,)``."""
        placed = [shares[key] for key in self.keys]
        pieces = np.fromiter(map(len, placed), dtype=np.int64, count=len(placed))
        flat = chain.from_iterable(chain.from_iterable(placed))
        pairs = np.fromiter(flat, dtype=np.int64, count=2 * int(pieces.sum())).reshape(-1, 2)
        weights = np.repeat(rows, pieces) * pairs[:, 1] / WHOLE_SHARE
        return np.bincount(pairs[:, 0], weights=weights, minlength=len(plan.tasks)).astype(np.float64)


def _tail(plan: RoutingPlan, slots: Rows, null_rows: float) -> Rows:
    """Rows of each task from the ring's slots and from rows without a key, shape ``(tasks,)``.

    A reducer's tail is taken to spread evenly over its key buckets.
    """
    reducers = np.bincount(plan.slot_tasks, weights=slots, minlength=len(plan.tasks))
    first = np.array([index - task.bucket for index, task in enumerate(plan.tasks)])
    factors = np.array([task.factor for task in plan.tasks])
    rows: Rows = reducers[first] / factors + null_rows / len(plan.tasks)
    return rows
