"""The load of each task in the next stage under any plan, and the rows that the plan moves."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt

from skewless.columns import numbers
from skewless.documents.job import Job
from skewless.documents.stage_report import Histogram, StageReport
from skewless.planner.forecast.expected_rows import BucketParts, ExpectedRows, RowCosts
from skewless.planner.forecast.key_sample import KeyCounts
from skewless.planner.forecast.observed_waves import ROW_SECONDS
from skewless.planner.placement.placement import Indices, Placement, Rows, sums
from skewless.routing.hashing import BUCKET_SEED, hashes_of
from skewless.routing.plan import WHOLE_WEIGHT, RoutingPlan
from skewless.routing.ring import Ring

_FITTING_ROUNDS = 8
#: Where slots take several tasks, sizes fall like ``LEAST + x ** FALL``, x from 1 to 0: from 2.3 to 0.1 of the mean
#: (after trapezoid self-scheduling, Tzen and Ni 1993, which is FALL = 1). The last task to end is then a small one,
#: whatever its rows cost and wherever it runs; the first one is still done in time by a slot four times slower.
LEAST, FALL = 0.05, 1.5


@dataclass(frozen=True)
class Forecast(ExpectedRows):
    """Loads in the next stage.

    Loads are in rows of average cost: a row that takes twice the average time to reduce counts two, and a task that is
    twice as fast has half the load. Where nothing was measured they are rows. Where it is known what a row costs and
    what it costs to set a key up, a set-up counts as the rows that take as long.
    """

    slots: int
    """Tasks that run side by side: as many as in the stage of the report."""
    setup_rows: float = 0.0
    """What it costs to set a key up in a task, in rows; 0 where it costs nothing, or where the measured seconds of rows
    contain it."""
    expected_keys: float = 0.0
    """Different keys in the next stage, about; matters with ``setup_rows`` alone."""
    later_rows: int = 0
    """Rows that the stages after the next one will admit."""
    costs_unlike: bool = False
    """Whether rows of different keys may cost unlike, and it is not known how."""

    @classmethod
    def after(
        cls,
        job: Job,
        plan: RoutingPlan,
        report: StageReport,
        waves: tuple[int, int] | None = None,
        expected_keys: float | None = None,
        memory: Histogram | None = None,
        counted_part: float = 0.0,
        costs_unlike: bool = False,
    ) -> "Forecast":
        """The forecast for the stage after ``report``; by default it admits one wave, as long as there is one."""
        end = plan.waves[1]
        waves = waves or (end, min(end + 1, len(job.waves)))
        seen = report.histogram.seen_rows, report.waves[1]
        rows, later = (job.predicted_rows(some, *seen) for some in (waves, (waves[1], len(job.waves))))
        setup_rows = 0.0 if report.histogram.head_seconds else _setup_rows(job)
        if setup_rows and expected_keys is None:
            expected_keys = KeyCounts.of_report(report).keys_in(rows + report.backlog_rows)
        return cls(
            plan, report, waves, rows, memory, job.slots_at(report), setup_rows, expected_keys or 0.0, later,
            costs_unlike, counted_part=counted_part,
        )  # fmt: skip

    # What a row costs.

    @cached_property
    def row_costs(self) -> RowCosts:
        """What rows cost, as the report measured them."""
        return RowCosts(self.report)

    @cached_property
    def head_costs(self) -> Rows:
        """Cost of a row of each head key, in rows of average cost, shape ``(len(keys),)``."""
        return self.row_costs.of_keys(self.keys)

    @cached_property
    def _hashes(self) -> tuple[Indices, Indices]:
        buckets = hashes_of(self.keys, BUCKET_SEED) if self.plan.factors else np.zeros(len(self.keys), dtype=np.int64)
        return hashes_of(self.keys), buckets

    @property
    def rows_are_alike(self) -> bool:
        """Whether every row costs about the same."""
        return self.row_costs.mean_seconds is None and not self.setup_rows

    @cached_property
    def head_loads(self) -> Rows:
        """Load of each head key in one task, shape ``(len(keys),)``, in rows of average cost."""
        return self.head_rows * self.head_costs + self.setup_rows

    @cached_property
    def placement_now(self) -> Placement:
        """Where each head key of this forecast goes under the plan of the reported stage."""
        return Placement.under(self.plan.head, self.keys, self.on_ring(self.plan))

    @cached_property
    def _overlap(self) -> Callable[[Placement], tuple[Indices, Indices, Rows]]:
        return lru_cache(maxsize=1)(self.placement_now.overlap)

    def on_ring(self, plan: RoutingPlan) -> Indices:
        """The task index that ring and buckets give each head key, shape ``(len(keys),)``."""
        ring, bucket = self._hashes
        if plan.factors and not self.plan.factors:
            bucket = hashes_of(self.keys, BUCKET_SEED)
        slots = ring >> (32 - plan.ring.ring_bits)
        return np.asarray(plan.slot_tasks[slots].astype(np.int64) + bucket % plan.slot_factors[slots])

    def tail_rows(self, plan: RoutingPlan) -> Rows:
        """Load of tail and null rows of each task under a plan's ring, shape ``(tasks,)``."""
        for known, rows in self._tails:
            if known.ring is plan.ring and known.factors == plan.factors:
                return rows
        self._tails.append((plan, self._tail(plan, *self._tail_loads, self.null_backlog + self.null_wave)))
        return self._tails[-1][1]

    @cached_property
    def _tails(self) -> list[tuple[RoutingPlan, Rows]]:
        return []

    @cached_property
    def _tail_loads(self) -> tuple[Rows, Rows]:
        # Of the other keys there are about as many to set up in each slot.
        setups = self.setup_rows * max(0.0, self.expected_keys - len(self.keys)) / len(self.tail_backlog)
        if self.rows_are_alike:
            return self.tail_wave, self.tail_backlog
        cost = self.row_costs.tail_cost
        return self.tail_wave * cost + setups, self.tail_backlog * cost

    def _tail(self, plan: RoutingPlan, wave: Rows, backlog: Rows, null_rows: float) -> Rows:
        """Rows of each task from the ring's slots, to come and left over, and from rows without a key."""
        _, buckets, factors = plan.task_table.T
        if self.plan.factors:
            return self._bucket_parts.tail(plan, wave, backlog) + null_rows / len(buckets)
        none = self._no_tail
        rows = wave if backlog is none else backlog if wave is none else wave + backlog
        reducers = np.bincount(plan.slot_tasks, weights=rows, minlength=plan.task_count)
        first = np.arange(len(buckets)) - buckets
        return np.asarray(reducers[first] / factors + null_rows / len(buckets))

    @cached_property
    def _no_tail(self) -> Rows:
        return np.broadcast_to(0.0, len(self.tail_backlog))

    @cached_property
    def _bucket_parts(self) -> BucketParts:
        queued, left = (numbers(self.report.tasks, name).astype(np.float64) for name in ("queued_rows", "backlog_rows"))
        # Where keys change, those of the last wave would be taken for the buckets' own; and so would a named key's
        # where rows had waited, of which nobody knows how many were its.
        steady = float(self.memory is None and not self.report.backlog_in_rows)
        of_seen = float(queued.sum()) / max(1, self._remembered.seen_rows)
        head, null = self._fresh[self._order] * of_seen, self._remembered.seen_null_rows * of_seen
        named, waits = (self.placement_now.loads(rows, len(queued)) for rows in (head, self.head_backlog))
        came, left = queued - named - null / len(queued), left - waits - self.null_backlog / len(left)
        return BucketParts.measured(self.plan, steady * np.maximum(0.0, came), np.maximum(0.0, left))

    def loads(self, plan: RoutingPlan, placement: Placement) -> Rows:
        """Predicted load of each task under a plan with the head keys placed so, shape ``(tasks,)``."""
        if self._same_draws(plan):
            before, after, part = self._overlap(placement)
            rows = self.piece_loads[before] * part
            come = sums(placement.task[after], rows, plan.task_count)
            if plan.ring is not self.plan.ring:
                return self.tail_rows(plan) + come
            gone = sums(self.placement_now.task[before], rows, plan.task_count)
            # Estimated pieces may add up to more than their task has; a load is never negative.
            return np.maximum(0.0, self.loads_unchanged + come - gone)
        head = placement.loads(self.head_loads, plan.task_count)
        return self.tail_rows(plan) + head

    def wave_loads(self, plan: RoutingPlan, placement: Placement) -> Rows:
        """Predicted load of each task from the admitted rows alone, shape ``(tasks,)``."""
        tail = self._tail(plan, self.tail_wave * self.row_costs.tail_cost, self._no_tail, self.null_wave)
        head = placement.loads(self.head_wave * self.head_costs, plan.task_count)
        return tail + head

    @cached_property
    def loads_unchanged(self) -> Rows:
        """Predicted load of each task if nothing moves: the backlog stays exactly where it is.

        Head keys of the plan that are no head keys of the forecast are counted on the ring: they
        are too light to have been reported one by one.
        """
        if not self.rows_are_alike:
            head = sums(self.placement_now.task, self.piece_loads, self.plan.task_count)
            return self.tail_rows(self.plan) + head
        backlog = numbers(self.report.tasks, "backlog_rows").astype(np.float64)
        wave = self._tail(self.plan, self.tail_wave, self._no_tail, self.null_wave)
        head = self.placement_now.loads(self.head_wave, self.plan.task_count)
        return backlog + wave + head

    def _same_draws(self, plan: RoutingPlan) -> bool:
        return plan.same_tasks(self.plan) and plan.share_salt == self.plan.share_salt

    @cached_property
    def piece_backlog(self) -> Rows:
        """Backlog rows of each piece of ``placement_now``, shape ``(pieces,)``.

        What a task left over is known, and what is left of a key; where a task has pieces of several split keys, how it
        is made up is estimated (iterative proportional fitting, Deming and Stephan 1940).
        """
        now, count = self.placement_now, self.plan.task_count
        pieces = now.pieces[now.key]
        rows = self.head_backlog[now.key] * now.weight / WHOLE_WEIGHT
        split = pieces > 1
        if not split.any():
            return rows
        left = numbers(self.report.tasks, "backlog_rows").astype(np.float64)
        left -= self._tail(self.plan, self._no_tail, self.tail_backlog, self.null_backlog)
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
        """Rows, whatever they cost, that are predicted for each task, shape ``(tasks,)``."""
        if self.rows_are_alike:
            return self.loads(plan, placement)
        tail = self._tail(plan, self.tail_wave, self.tail_backlog, self.null_backlog + self.null_wave)
        return tail + placement.loads(self.head_rows, plan.task_count)

    def forwarded_rows(self, plan: RoutingPlan, placement: Placement) -> float:
        """Backlog rows that another plan moves to another task, expected.

        With a new salt, rows of split keys and rows without a key are drawn anew: a row stays with
        the probability that its old and its new draw name the same task.
        """
        before = self.placement_now
        if self._same_draws(plan):
            piece, other, part = self._overlap(placement)
            moves = before.task[piece] != placement.task[other]
            moved = float((self.piece_backlog[piece] * part)[moves].sum())
            return moved + float(self.tail_backlog[self._tail_moves(plan)].sum())
        if not plan.same_tasks(self.plan):
            now = {task: number for number, task in enumerate(plan.tasks)}
            # A task that is no more gets a number that no task has.
            renumbered = np.array([now.get(task, plan.task_count) for task in self.plan.tasks])
            pieces = np.lexsort((renumbered[before.task], before.key))
            before = Placement(before.keys, before.key[pieces], renumbered[before.task[pieces]], before.weight[pieces])
        moved = float((self.head_backlog * (1.0 - before.kept_part(placement))).sum())
        if plan.share_salt != self.plan.share_salt or not plan.same_tasks(self.plan):
            moved += self.null_backlog * (1.0 - 1.0 / plan.task_count)
        return moved + float(self.tail_backlog[self._tail_moves(plan)].sum())

    def split_error(self, plan: RoutingPlan, placement: Placement) -> float:
        """By how many rows the random split of keys may put the largest task's load above its forecast.

        A cut of a segment, or a new draw of a split key, moves the planned part of its rows only on average: of n rows
        the part p comes with the variance ``n p (1 - p)``. The largest of W normal errors is about
        ``sqrt(2 ln W)`` standard deviations.
        """
        if self._same_draws(plan):
            before, after, part = self._overlap(placement)
            variance = self.piece_backlog[before] * part * (1.0 - part)
            task = placement.task[after]
        else:
            share = placement.weight / WHOLE_WEIGHT
            variance = self.head_backlog[placement.key] * share * (1.0 - share)
            task = placement.task
        worst = float(sums(task, variance, plan.task_count).max(initial=0.0))
        return math.sqrt(2.0 * math.log(plan.task_count) * worst)

    def _tail_moves(self, plan: RoutingPlan) -> npt.NDArray[np.bool_]:
        if plan.ring is self.plan.ring and plan.factors == self.plan.factors:
            return np.zeros(len(self.tail_backlog), dtype=bool)
        moved: npt.NDArray[np.bool_] = plan.ring.slot_owners != self.plan.ring.slot_owners
        moved |= plan.slot_factors != self.plan.slot_factors
        return moved

    @property
    def falling(self) -> Rows | None:
        """How large tasks are to be beside each other where slots take several each; None where they are alike."""
        count = self.plan.task_count
        if not self.costs_unlike or count <= self.slots:
            return None
        sizes = LEAST + np.linspace(1.0, 0.0, count) ** FALL
        return np.asarray(sizes / sizes.mean())

    def plan_with(self, ring: Ring | None = None, factors: dict[int, int] | None = None) -> RoutingPlan:
        """A plan for the next stage without head keys: this ring and these factors, or the present ones."""
        plan = RoutingPlan(
            epoch=self.report.stage + 1,
            policy=self.plan.policy,
            waves=self.waves,
            ring=ring or self.plan.ring,
            factors=self.plan.factors if factors is None else factors,
            share_salt=self.plan.share_salt,
        )
        for known in (self.plan, *(known for known, _ in self._tails)):
            plan.take_tasks(known)
        return plan


def _setup_rows(job: Job) -> float:
    """What it costs to set a key up, in rows, as the aggregates declare both; 0 where they do not."""
    setup = math.fsum(one.setup_seconds for one in job.algebra.values())
    declared = [one.row_seconds for one in job.algebra.values() if one.row_seconds is not None]
    if not setup or len(declared) < len(job.algebra):
        return 0.0
    return setup / (ROW_SECONDS + math.fsum(declared))
