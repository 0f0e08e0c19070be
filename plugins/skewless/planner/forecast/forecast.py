"""What the next stage will find queued, predicted from the last report."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from skewless.documents.job import Job
from skewless.documents.stage_report import Histogram, StageReport
from skewless.planner.cost import ROW_SECONDS
from skewless.planner.forecast.key_counts import KeyCounts
from skewless.planner.placement.placement import Indices, Placement, Rows, sums
from skewless.routing.hashing import bucket_hash, key_hash
from skewless.routing.plan import WHOLE_WEIGHT, RoutingPlan, Weights
from skewless.routing.ring import Ring

#: A key must have been seen so often before the next wave's rows are foretold from that alone.
#: Of the keys seen once or twice most are rarer than they look, and as many were not seen at
#: all (Good 1953): naming them would lay too much on their tasks and too little on the others.
SEEN_ENOUGH = 8
_FITTING_ROUNDS = 8
#: Keys whose counts say how counts fall with rank.
_ENOUGH_KEYS = 32
#: Speeds that differ by less than this are noise, and all tasks are taken to be alike.
ALIKE = 0.15
#: Keys whose rows cost unlike the average matter if they have more than this part of the rows.
FEW_UNLIKE = 0.02


@dataclass(frozen=True)
class Forecast:
    """Rows queued in the next stage: the backlog, exactly, and what is admitted, by the rows seen so far.

    Loads are in rows of average cost: a row that takes twice the average time to reduce counts
    two, and a task that is twice as fast has half the load. Where nothing was measured they are rows.
    Where it is known what a row costs and what it costs to set a key up, a set-up counts as the rows that
    take as long.

    Attributes:
        plan: the plan of the stage that was reported.
        report: its report.
        waves: the waves that the next stage admits, ``first <= wave < end``.
        wave_rows: their rows; 0 when the input is used up.
        slots: tasks that run side by side.
        setup_rows: what it costs to set a key up in a task, in rows; 0 where it costs nothing, or where the
            measured seconds of rows contain it.
        expected_keys: different keys in the next stage, about; matters with ``setup_rows`` alone.
        later_rows: rows that the stages after the next one will admit.
        memory: the report's histogram, the rows of older stages weighted less (``skewless.planner.forecast.recency``);
            None where all rows weigh alike.
    """

    plan: RoutingPlan
    report: StageReport
    waves: tuple[int, int]
    wave_rows: int
    slots: int
    setup_rows: float = 0.0
    expected_keys: float = 0.0
    later_rows: int = 0
    memory: Histogram | None = None

    @classmethod
    def after(
        cls,
        job: Job,
        plan: RoutingPlan,
        report: StageReport,
        waves: tuple[int, int] | None = None,
        expected_keys: float | None = None,
        memory: Histogram | None = None,
    ) -> Forecast:
        """The forecast for the stage after ``report``.

        Args:
            job: the frozen job.
            plan: the plan of the reported stage.
            report: what happened.
            waves: what the next stage admits; one wave by default, as long as there is one.
            expected_keys: see the class; by default what the report's counts say.
            memory: see the class.
        """
        end = plan.waves[1]
        waves = waves or (end, min(end + 1, len(job.waves)))
        seen = report.histogram.seen_rows, report.waves[1]
        rows, later = (job.predicted_rows(some, *seen) for some in (waves, (waves[1], len(job.waves))))
        setup_rows = 0.0 if report.histogram.head_seconds else _setup_rows(job)
        if setup_rows and expected_keys is None:
            expected_keys = KeyCounts.of_report(report).keys_in(rows + report.backlog_rows)
        return cls(
            plan, report, waves, rows, job.spec.routing.parallelism, setup_rows, expected_keys or 0.0, later, memory
        )

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
        """The rows seen, as they weigh."""
        return self.memory or self.report.histogram

    # Which keys are placed one by one.

    @cached_property
    def _all_keys(self) -> tuple[list[str], Rows, Rows]:
        """The reported head keys by text, with rows seen, as they weigh, and left over."""
        head = self._remembered.head
        texts = sorted(head)
        table = np.array([head[key] for key in texts], dtype=np.float64).reshape(-1, 2)
        return texts, table[:, 0], table[:, 1]

    @cached_property
    def _discount(self) -> float:
        """By how much a key seen r times is rarer than r: the part of its count that is luck.

        Of all keys that were seen r times more are rarer keys in luck than more frequent ones out of
        luck. Good (1953): the expectation is ``(r + 1) N(r+1) / N(r)``, N(r) being the number of keys
        seen r times. Where counts fall with rank as ``rank**-z``, N(r) falls as ``r**-(1 + 1/z)``,
        and the expectation is about ``r - 1/z``. Keys that were named for having been seen often
        share this bias, and packed together on a task they add it up. z is taken from the lower
        three quarters of the keys that were seen often. No count is off by more than luck can be, its
        square root; and what is taken from all of them is at most what the others have: where every
        key is named, none was picked for its luck.
        """
        histogram = self._remembered
        seen = np.sort(self._all_keys[1])[::-1]
        seen = seen[seen >= SEEN_ENOUGH]
        if len(seen) < _ENOUGH_KEYS:
            return 0.0
        quarter, least = float(seen[len(seen) // 4]), float(seen[-1])
        slope = math.log(quarter / least) / math.log(4.0)
        others = histogram.seen_rows - histogram.seen_null_rows - float(seen.sum())
        luck = min(math.sqrt(least), max(0.0, others) / len(seen))
        return min(luck, 1.0 / slope) if slope > 0 else luck

    @cached_property
    def _fresh(self) -> Rows:
        """Rows that are foretold of each reported head key, for each row seen so far of all keys."""
        seen = self._all_keys[1]
        return np.maximum(0.0, seen - np.where(seen >= SEEN_ENOUGH, self._discount, 0.0))

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

        Those of which rows are expected, and whose number is known well enough: from having been
        seen often, or because most of it waits in the backlog; and those that the plan places already.
        It is the order of all arrays over the head.
        """
        texts = self._all_keys[0]
        return tuple([texts[number] for number in self._order.tolist()])

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
    def _hashes(self) -> tuple[Indices, Indices]:
        """Ring hash and bucket hash of each head key."""
        ring = np.fromiter(map(key_hash, self.keys), dtype=np.int64, count=len(self.keys))
        if not self.plan.factors:
            return ring, np.zeros(len(self.keys), dtype=np.int64)
        return ring, np.fromiter(map(bucket_hash, self.keys), dtype=np.int64, count=len(self.keys))

    # What is not placed one by one.

    @cached_property
    def _light_head(self) -> tuple[Indices, Rows, Rows]:
        """Slots, seen rows and backlog rows of the head keys that are left to the ring."""
        texts, seen, left = self._all_keys
        light = np.ones(len(texts), dtype=bool)
        light[self._order] = False
        light &= (seen > 0) | (left > 0)
        numbers = np.flatnonzero(light)
        slots = [self.plan.ring.slot_of(texts[number]) for number in numbers.tolist()]
        return np.array(slots, dtype=np.int64), seen[numbers], left[numbers]

    @property
    def null_wave(self) -> float:
        """Admitted rows without a key; all of them where nothing has been seen to go by."""
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
        """Rows of all other keys among those admitted, per slot of the ring.

        What named keys are foretold less than their count, keys will have that have not been seen yet.
        """
        slots, seen, _ = self._light_head
        tail = np.array(self._remembered.seen_tail, dtype=np.float64)
        unseen = float((self._all_keys[1] - self._fresh)[self._order].sum()) / len(tail)
        rows: Rows = self.scale * (tail + unseen + np.bincount(slots, weights=seen, minlength=len(tail)))
        return rows

    # What a row costs, and how fast a task is.

    @cached_property
    def _mean_seconds(self) -> float | None:
        """Seconds for a row of average cost; None where rows were not measured, or cost much the same."""
        histogram = self.report.histogram
        if not histogram.head_seconds or histogram.tail_seconds is None:
            return None
        done = self.report.histogram.seen_rows - self.report.backlog_rows
        seconds = math.fsum(histogram.head_seconds.values()) + histogram.tail_seconds
        mean = seconds / done if done > 0 and seconds > 0 else None
        return mean if mean and self._unlike_part(mean, done) > FEW_UNLIKE else None

    def _unlike_part(self, mean: float, done: int) -> float:
        """Which part of the reduced rows is of keys whose rows cost more or less than the average row."""
        unlike = 0.0
        for key, seconds in self.report.histogram.head_seconds.items():
            seen, left = self.report.histogram.head.get(key, (0, 0))
            rows = seen - left
            if rows > 0 and abs(seconds / rows / mean - 1.0) > ALIKE:
                unlike += rows
        return unlike / done

    @cached_property
    def head_costs(self) -> Rows:
        """Cost of a row of each head key, in rows of average cost, shape ``(len(keys),)``."""
        costs = np.ones(len(self.keys))
        mean = self._mean_seconds
        if mean is None:
            return costs
        histogram = self.report.histogram
        for at, key in enumerate(self.keys):
            seen, left = histogram.head[key]
            if seen > left and key in histogram.head_seconds:
                costs[at] = histogram.head_seconds[key] / (seen - left) / mean
        return costs

    @cached_property
    def tail_cost(self) -> float:
        """Cost of a row of any other key, in rows of average cost."""
        mean, histogram = self._mean_seconds, self.report.histogram
        measured = set(histogram.head_seconds)
        seen = sum(rows for key, (rows, _) in histogram.head.items() if key in measured)
        left = sum(rows for key, (_, rows) in histogram.head.items() if key in measured)
        done = (histogram.seen_rows - seen) - (self.report.backlog_rows - left)
        if mean is None or histogram.tail_seconds is None or done <= 0:
            return 1.0
        return histogram.tail_seconds / done / mean

    @cached_property
    def speeds(self) -> Rows:
        """Speed of each task beside the median, shape ``(tasks,)``; 1 where it was not measured.

        By the rows of light keys, where those were timed apart; else rows per busy second. Where only
        keys were measured one by one, a difference between tasks is taken to be one between their keys.
        """
        loads = self.report.tasks
        slowness = [load.slowness for load in loads if load.slowness is not None]
        if len(slowness) == len(loads):
            apart = 1.0 / np.array(slowness)
            return np.ones(len(loads)) if apart.max() - apart.min() < ALIKE else apart
        timed = [(load.processed_rows, load.busy_seconds) for load in loads]
        even = np.ones(len(loads))
        if self._mean_seconds is not None or not all(rows and seconds for rows, seconds in timed):
            return even
        rates = np.array([rows / seconds for rows, seconds in timed if seconds])
        speeds = rates / np.median(rates)
        return even if speeds.max() - speeds.min() < ALIKE else speeds

    @property
    def rows_are_alike(self) -> bool:
        """Whether every row costs about the same wherever it goes."""
        return self._mean_seconds is None and not self.setup_rows and bool((self.speeds == 1.0).all())

    # Loads, and what moves.

    @cached_property
    def head_loads(self) -> Rows:
        """Load of each head key in one task, shape ``(len(keys),)``, in rows of average cost."""
        return self.head_rows * self.head_costs + self.setup_rows

    @cached_property
    def placement_now(self) -> Placement:
        """Where each head key of this forecast goes under the plan of the reported stage."""
        return self.placement_under(self.plan)

    def placement_under(self, plan: RoutingPlan) -> Placement:
        """Where each head key goes under a plan: to its shares, or where ring and buckets say."""
        on_ring = self.on_ring(plan)
        if not plan.head:
            return Placement.pinned(on_ring)
        tasks = on_ring.tolist()
        shares: list[Weights] = [
            plan.head.get(key) or ((task, WHOLE_WEIGHT),) for key, task in zip(self.keys, tasks, strict=True)
        ]
        return Placement.of_shares(shares)

    def on_ring(self, plan: RoutingPlan) -> Indices:
        """The task index that ring and buckets give each head key, shape ``(len(keys),)``."""
        ring, bucket = self._hashes
        if plan.factors and not self.plan.factors:
            bucket = np.fromiter(map(bucket_hash, self.keys), dtype=np.int64, count=len(self.keys))
        slots = ring >> (32 - plan.ring.ring_bits)
        tasks: Indices = plan.slot_tasks[slots].astype(np.int64) + bucket % plan.slot_factors[slots]
        return tasks

    def tail_rows(self, plan: RoutingPlan) -> Rows:
        """Load of tail and null rows of each task under a plan's ring, shape ``(tasks,)``."""
        slots = (self.tail_backlog + self.tail_wave) * self.tail_cost + self._tail_setups
        return _tail(plan, slots, self.null_backlog + self.null_wave)

    @property
    def _tail_setups(self) -> float:
        """Load of setting up the other keys of a slot: there are about as many in each."""
        return self.setup_rows * max(0.0, self.expected_keys - len(self.keys)) / len(self.tail_backlog)

    def loads(self, plan: RoutingPlan, placement: Placement) -> Rows:
        """Predicted load of each task under a plan with the head keys placed so, shape ``(tasks,)``."""
        if self._same_draws(plan):
            before, after, part = self.placement_now.overlap(placement)
            rows = self.piece_loads[before] * part
            come = sums(placement.task[after], rows, len(plan.tasks))
            if plan.ring is not self.plan.ring:
                return (self.tail_rows(plan) + come) / self._speeds(plan)
            gone = sums(self.placement_now.task[before], rows, len(plan.tasks))
            # What a task is foretold to keep is never below nothing, however its pieces were estimated.
            return np.maximum(0.0, self.loads_unchanged() + (come - gone) / self._speeds(plan))
        head = placement.loads(self.head_loads, len(plan.tasks))
        return (self.tail_rows(plan) + head) / self._speeds(plan)

    def wave_loads(self, plan: RoutingPlan, placement: Placement) -> Rows:
        """Predicted load of each task from the admitted rows alone, shape ``(tasks,)``."""
        tail = _tail(plan, self.tail_wave * self.tail_cost, self.null_wave)
        head = placement.loads(self.head_wave * self.head_costs, len(plan.tasks))
        return (tail + head) / self._speeds(plan)

    def loads_unchanged(self) -> Rows:
        """Predicted load of each task if nothing moves: the backlog stays exactly where it is.

        Head keys of the plan that are no head keys of the forecast are counted on the ring: they
        are too light to have been reported one by one.
        """
        if not self.rows_are_alike:
            head = sums(self.placement_now.task, self.piece_loads, len(self.plan.tasks))
            return (self.tail_rows(self.plan) + head) / self._speeds(self.plan)
        backlog = np.array([load.backlog_rows for load in self.report.tasks], dtype=np.float64)
        wave = _tail(self.plan, self.tail_wave, self.null_wave)
        head = self.placement_now.loads(self.head_wave, len(self.plan.tasks))
        return backlog + wave + head

    def _same_draws(self, plan: RoutingPlan) -> bool:
        """Whether a row of a split key draws under a plan what it drew before."""
        return plan.tasks == self.plan.tasks and plan.share_salt == self.plan.share_salt

    @cached_property
    def piece_backlog(self) -> Rows:
        """Backlog rows of each piece of ``placement_now``, shape ``(pieces,)``.

        What a task left over is known, and what is left of a key; where a task has pieces of
        several split keys, how it is made up is estimated (iterative proportional fitting, Deming
        and Stephan 1940).
        """
        now, count = self.placement_now, len(self.plan.tasks)
        pieces = now.pieces[now.key]
        rows = self.head_backlog[now.key] * now.weight / WHOLE_WEIGHT
        split = pieces > 1
        if not split.any():
            return rows
        left = np.array([load.backlog_rows for load in self.report.tasks], dtype=np.float64)
        left -= _tail(self.plan, self.tail_backlog, self.null_backlog)
        left -= np.bincount(now.task[~split], weights=rows[~split], minlength=count)
        left = np.maximum(left, 0.0)
        key, task = now.key[split], now.task[split]
        fitted = rows[split] + 1e-9
        for _ in range(_FITTING_ROUNDS):
            fitted *= (left / np.maximum(np.bincount(task, weights=fitted, minlength=count), 1e-9))[task]
            fitted += 1e-9
            fitted *= (self.head_backlog / np.maximum(np.bincount(key, weights=fitted, minlength=now.keys), 1e-9))[key]
        rows[split] = fitted
        return rows

    @cached_property
    def piece_loads(self) -> Rows:
        """Load of each piece of ``placement_now``: its backlog, its share of what is admitted, and its set-up."""
        now = self.placement_now
        wave = self.head_wave[now.key] * now.weight / WHOLE_WEIGHT
        return (self.piece_backlog + wave) * self.head_costs[now.key] + self.setup_rows

    def expected_rows(self, plan: RoutingPlan, placement: Placement) -> Rows:
        """Rows, whatever they cost, that are foretold for each task, shape ``(tasks,)``."""
        if self.rows_are_alike:
            return self.loads(plan, placement)
        tail = _tail(plan, self.tail_backlog + self.tail_wave, self.null_backlog + self.null_wave)
        return tail + placement.loads(self.head_rows, len(plan.tasks))

    def forwarded_rows(self, plan: RoutingPlan, placement: Placement) -> float:
        """Backlog rows that another plan moves to another task, expected.

        With a new salt, rows of split keys and rows without a key are drawn anew: a row stays with
        the probability that its old and its new draw name the same task.
        """
        before = self.placement_now
        if self._same_draws(plan):
            piece, other, part = before.overlap(placement)
            moves = before.task[piece] != placement.task[other]
            moved = float((self.piece_backlog[piece] * part)[moves].sum())
            return moved + float(self.tail_backlog[self._tail_moves(plan)].sum())
        if plan.tasks != self.plan.tasks:
            now = {task: number for number, task in enumerate(plan.tasks)}
            # A task that is no more gets a number that no task has.
            renumbered = np.array([now.get(task, len(plan.tasks)) for task in self.plan.tasks])
            pieces = np.lexsort((renumbered[before.task], before.key))
            before = Placement(before.keys, before.key[pieces], renumbered[before.task[pieces]], before.weight[pieces])
        moved = float((self.head_backlog * (1.0 - before.staying(placement))).sum())
        if plan.share_salt != self.plan.share_salt or plan.tasks != self.plan.tasks:
            moved += self.null_backlog * (1.0 - 1.0 / len(plan.tasks))
        return moved + float(self.tail_backlog[self._tail_moves(plan)].sum())

    def split_error(self, plan: RoutingPlan, placement: Placement) -> float:
        """By how many rows the luck of the draw may put the largest task's load above its forecast.

        A cut of a segment hands over its part of the rows that are left only in the mean, and so does
        a new draw of a split key: of n rows the part p comes with the variance ``n p (1 - p)``. The
        largest of W normal errors is about ``sqrt(2 ln W)`` standard deviations.
        """
        if self._same_draws(plan):
            before, after, part = self.placement_now.overlap(placement)
            variance = self.piece_backlog[before] * part * (1.0 - part)
            task = placement.task[after]
        else:
            share = placement.weight / WHOLE_WEIGHT
            variance = self.head_backlog[placement.key] * share * (1.0 - share)
            task = placement.task
        worst = float(sums(task, variance, len(plan.tasks)).max(initial=0.0))
        return math.sqrt(2.0 * math.log(len(plan.tasks)) * worst)

    def _tail_moves(self, plan: RoutingPlan) -> npt.NDArray[np.bool_]:
        """Which slots go to another task; a split or a merge renames all tasks of a reducer."""
        if plan.ring is self.plan.ring and plan.factors == self.plan.factors:
            return np.zeros(len(self.tail_backlog), dtype=bool)
        moved: npt.NDArray[np.bool_] = plan.ring.slot_owners != self.plan.ring.slot_owners
        moved |= plan.slot_factors != self.plan.slot_factors
        return moved

    def _speeds(self, plan: RoutingPlan) -> Rows:
        """Speeds are those of slots: where the tasks change, nothing is known of the new ones."""
        return self.speeds if plan.tasks == self.plan.tasks else np.ones(len(plan.tasks))

    def speeds_under(self, plan: RoutingPlan) -> Rows | None:
        """Speeds of a plan's tasks, or None where they are alike."""
        speeds = self._speeds(plan)
        return None if bool((speeds == 1.0).all()) else speeds

    def plan_with(self, ring: Ring | None = None, factors: dict[int, int] | None = None) -> RoutingPlan:
        """A plan for the next stage without head keys: this ring and these factors, or the present ones."""
        return RoutingPlan(
            epoch=self.report.stage + 1,
            policy=self.plan.policy,
            waves=self.waves,
            ring=ring or self.plan.ring,
            factors=self.plan.factors if factors is None else factors,
            share_salt=self.plan.share_salt,
        )


def _setup_rows(job: Job) -> float:
    """What it costs to set a key up, in rows, as the aggregates declare both; 0 where they do not."""
    setup = math.fsum(one.setup_seconds for one in job.algebra.values())
    declared = [one.row_seconds for one in job.algebra.values() if one.row_seconds is not None]
    if not setup or len(declared) < len(job.algebra):
        return 0.0
    return setup / (ROW_SECONDS + math.fsum(declared))


def _tail(plan: RoutingPlan, slots: Rows, null_rows: float) -> Rows:
    """Rows of each task from the ring's slots and from rows without a key, shape ``(tasks,)``.

    A reducer's tail is taken to spread evenly over its key buckets.
    """
    reducers = np.bincount(plan.slot_tasks, weights=slots, minlength=len(plan.tasks))
    tasks = np.array(plan.tasks, dtype=np.int64)  # reducer, bucket, factor
    first = np.arange(len(tasks)) - tasks[:, 1]
    rows: Rows = reducers[first] / tasks[:, 2] + null_rows / len(tasks)
    return rows
