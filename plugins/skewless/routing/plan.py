"""The routing plan of one epoch: where keys go in one stage, and the waves into which the input is cut."""

import struct
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import accumulate
from typing import Annotated, Any, Literal, Self

import mmh3
import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator

from skewless.document import LARGEST_SUM, LAST_STAGE, Count, Document, Frozen, unmet
from skewless.errors import PlanError
from skewless.routing.hashing import bucket_hash, origin_hash
from skewless.routing.ring import Ring, VirtualTask, tasks_of
from skewless.spec.routing import ENGINES, EngineName, EngineTraits

#: The weights of a head key are whole numbers that add up to this.
WHOLE_WEIGHT = 1 << 16

#: No plan has more tasks: each is a partition of Spark, and a line of a report.
LARGEST_PLAN = 1 << 20

#: ``((task index, weight), ...)``; the weights add up to WHOLE_WEIGHT. They cut the range of row hashes into segments,
#: in this order; a task may have several.
Weights = tuple[tuple[int, int], ...]


#: What a plan derives from its reducers and factors alone, and what from its ring, too.
_OF_TASKS, _OF_SLOTS = ("tasks", "task_names", "task_table"), ("slot_tasks", "slot_factors")


class PlanSource(Frozen):
    """What a first plan was made from: nothing but the ring, the histogram of an earlier run, or a sample of keys."""

    kind: Literal["ring", "run", "sample"]
    run: str = ""
    """The folder of the earlier run; empty where there is none."""
    rows: Count = 0
    """The rows of that run or of the sample."""

    @property
    def words(self) -> str:
        """The source as a part of a sentence."""
        return {
            "ring": "the plain ring",
            "run": f"run {self.run} of {self.rows:,} rows",
            "sample": f"a sample of {self.rows:,} rows",
        }[self.kind]


class RoutingPlan(Document):
    """Where each key goes, which wave is admitted, and how many rows a task may reduce."""

    epoch: int = Field(ge=0, le=LAST_STAGE)
    """The number of the plan, and of the stage that it routes."""
    policy: str
    engine: EngineName = "staged"
    """``staged``; or one that takes in all that is left: ``combine``, which routes nothing, or ``bypass``, which routes
    head keys as the plan says, and tail keys by a hash of Spark's own instead of by the ring."""
    waves: tuple[int, int]
    """The waves that the stage admits, ``first <= wave < end``; empty once the input is used up."""
    ring: Ring
    factors: dict[int, int] = Field(default_factory=dict)
    """Elasticity factor of each reducer, a power of two; 1 where not named."""
    head: dict[str, Weights] = Field(default_factory=dict)
    """For each head key (its key text) the weights of its tasks."""
    share_salt: int = Field(default=0, ge=0, lt=1 << 31)
    """Mixed into the row hash. It changes when weights change: the backlog of a split key is what one of its tasks
    could not reduce, so its rows are not a fair sample of the old hash, and would fall into few of the new segments."""
    budget_rows: int | None = Field(default=None, ge=0, le=LARGEST_SUM)
    """Rows that each task may reduce in the stage; null for no limit."""
    expected_rows: tuple[Annotated[int, Field(ge=-LARGEST_SUM, le=LARGEST_SUM)], ...] = ()
    """Rows predicted to be queued at each task, by task index; empty where nothing was known. Its error tells the next
    decision how far to trust its own prediction."""
    sentence: str = ""
    """What a first plan was made from, in words; the reasons of a later plan are in its decision."""
    source: PlanSource | None = None
    """What a first plan was made from; null in later plans."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if any(f < 1 or f & (f - 1) for f in self.factors.values()) or set(self.factors) - set(self.ring.tokens):
            raise unmet("factors that are powers of two, of reducers on the ring", str(self.factors)[:120])
        if (count := self.task_count) > LARGEST_PLAN:
            raise unmet(f"at most {LARGEST_PLAN:,} tasks", f"{count:,}"[:120])
        if not 0 <= self.waves[0] <= self.waves[1] <= LAST_STAGE:
            raise unmet("a range of waves", str(self.waves)[:120])
        if len(self.expected_rows) not in {0, count}:
            raise unmet(f"expected rows for each of the {count} tasks, or none", f"{len(self.expected_rows)}")
        for weights in dict.fromkeys(self.head.values()):  # many keys are whole on one task
            if not (len(weights) == 1 and weights[0][1] == WHOLE_WEIGHT and 0 <= weights[0][0] < count):
                _refuse_odd(self.head, weights, count)
        return self

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """A copy with some fields changed; with the same ring and factors it has the same tasks."""
        copied = super().model_copy(update=update, deep=deep)
        copied.take_tasks(self)
        return copied

    def take_tasks(self, other: "RoutingPlan") -> None:
        """Spare what another plan has derived from its tasks, if it has the same ones: thousands, on a large ring."""
        if not self.same_tasks(other):
            return
        known = _OF_TASKS + (_OF_SLOTS if self.ring is other.ring else ())
        self.__dict__.update((name, other.__dict__[name]) for name in known if name in other.__dict__)

    def same_tasks(self, other: "RoutingPlan") -> bool:
        """Whether both have the same virtual tasks, in the same order."""
        mine, others = ({who: one for who, one in plan.factors.items() if one > 1} for plan in (self, other))
        return mine == others and (self.ring is other.ring or self.ring.reducers == other.ring.reducers)

    @property
    def traits(self) -> EngineTraits:
        """What its engine makes of it."""
        return ENGINES[self.engine]

    @property
    def takes_all(self) -> bool:
        """Whether its stage takes in all rows that are left, and so is the last one."""
        return not self.traits.in_stages

    @property
    def task_count(self) -> int:
        """How many virtual tasks it has; to count them does not make them."""
        return len(self.ring.tokens) - len(self.factors) + sum(self.factors.values())

    @cached_property
    def tasks(self) -> tuple[VirtualTask, ...]:
        """The virtual tasks; a task's position here is its index, and its Spark partition."""
        return tuple(task for reducer in self.ring.reducers for task in tasks_of(reducer, self.factors.get(reducer, 1)))

    @cached_property
    def task_names(self) -> list[str]:
        """The names of the tasks, by their index."""
        return [f"{reducer}-{bucket}-{factor}" for reducer, bucket, factor in self.task_table.tolist()]

    @cached_property
    def task_table(self) -> npt.NDArray[np.int64]:
        """Reducer, bucket and factor of each task, shape ``(tasks, 3)``."""
        factors = np.array([self.factors.get(reducer, 1) for reducer in self.ring.reducers], dtype=np.int64)
        each, reducers = np.repeat(factors, factors), np.repeat(np.array(self.ring.reducers, dtype=np.int64), factors)
        first = np.repeat(np.cumsum(factors) - factors, factors)
        return np.stack([reducers, np.arange(len(each)) - first, each], axis=1)

    @cached_property
    def slot_tasks(self) -> npt.NDArray[np.int32]:
        """For each slot the index of bucket 0 of its reducer, shape ``(2**ring_bits,)``."""
        first = np.zeros(max(self.ring.reducers) + 1, dtype=np.int32)
        reducers, buckets, _ = self.task_table.T
        first[reducers[buckets == 0]] = np.flatnonzero(buckets == 0)
        return first.take(self.ring.slot_owners)

    @cached_property
    def slot_factors(self) -> npt.NDArray[np.int32]:
        """For each slot the factor of its reducer, shape ``(2**ring_bits,)``."""
        factors = np.ones(max(self.ring.reducers) + 1, dtype=np.int32)
        for reducer, factor in self.factors.items():
            factors[reducer] = factor
        return factors.take(self.ring.slot_owners)

    def row_hash(self, origin: int) -> int:
        """The unsigned 32-bit number that chooses among the weights of a row's key, or its task if it has no key.

        Four neighbours of a source partition share one hash, and their numbers lie a quarter of the range apart. So
        neighbours of one key spread evenly, and no weight varies more than with independent hashes: two of four
        neighbours fall into the same weight w with probability max(0, w - d) + max(0, w + d - 1) <= w * w, where d
        is their distance.
        """
        block = mmh3.hash(struct.pack("<i", self.share_salt), origin_hash(origin >> 2), signed=False)
        return (block + ((origin & 3) << 30)) & 0xFFFFFFFF

    def tail_task(self, key: str) -> int:
        """The task index the ring and the buckets give a key, whether it is in the head or not."""
        slot = self.ring.slot_of(key)
        return int(self.slot_tasks[slot]) + bucket_hash(key) % int(self.slot_factors[slot])

    def task_of(self, key: str | None, origin: int) -> int:
        """The task index of a row: what ``skewless_spark.stage.routes`` says in Spark SQL."""
        if key is None:
            return (self.row_hash(origin) * self.task_count) >> 32
        weights = self.head.get(key)
        if weights is None:
            return self.tail_task(key)
        at = self.row_hash(origin) >> 16
        for task, weight in weights:
            if at < weight:
                return task
            at -= weight
        raise PlanError(f"plan {self.epoch}", "weights that add up", "a row hash beyond them")


def _refuse_odd(head: Mapping[str, Weights], weights: Weights, count: int) -> None:
    numbers = [weight for _, weight in weights]
    known = all(0 <= task < count for task, _ in weights)
    if not known or sum(numbers) != WHOLE_WEIGHT or min(numbers) <= 0:
        key = next(key for key, one in head.items() if one == weights)
        came = f"{str(weights)[:80]} for key {key[:80]!r}"
        raise unmet(f"positive weights of the {count} tasks that add up to {WHOLE_WEIGHT}", came)


def earlier_tasks(before: RoutingPlan, plan: RoutingPlan) -> list[set[int]]:
    """For each task of a plan the tasks of an earlier plan that its keys may have been in, by their indices there.

    A task of the same name is always among them. There may be a few too many: the buckets of a reducer whose factor
    changed are not told apart. Keys that are split, or null, are in several tasks and are not looked at. The ring of
    the earlier plan may have another size.
    """
    numbers = {task: number for number, task in enumerate(before.tasks)}
    found = [{numbers[task]} if task in numbers else set[int]() for task in plan.tasks]
    bits = max(before.ring.ring_bits, plan.ring.ring_bits)
    owners, first, factors = (
        [np.repeat(table, 1 << (bits - one.ring.ring_bits)) for one, table in zip((before, plan), tables, strict=True)]
        for tables in (
            (before.ring.slot_owners, plan.ring.slot_owners),
            (before.slot_tasks, plan.slot_tasks),
            (before.slot_factors, plan.slot_factors),
        )
    )
    changed = np.flatnonzero((owners[0] != owners[1]) | (factors[0] != factors[1]))
    pairs = first[0][changed].astype(np.int64) * len(plan.tasks) + first[1][changed]
    for slot in changed[np.unique(pairs, return_index=True)[1]].tolist():
        (old, new), (buckets_before, buckets) = (
            (pair[slot].item() for pair in first),
            (pair[slot].item() for pair in factors),
        )
        for number in range(new, new + buckets):
            found[number].update(range(old, old + buckets_before))
    for key in before.head.keys() | plan.head.keys():
        found[plan.task_of(key, 0)].add(before.task_of(key, 0))
    return found


#: ``2**32`` times the golden section, rounded to an odd number.
GOLDEN_SECTION = 2_654_435_769


def cut_waves(rows: Sequence[int], weights: Sequence[float], *, in_order: bool = False) -> tuple[tuple[int, ...], ...]:
    """Assign each source partition, by its rows, to one wave, so that waves have about the given weights.

    The partitions are not taken in the order of the listing: the first, small wave should be a fair sample of the
    input, but neighbours in a listing are alike, as its order is often that of time. Each next partition lies a golden
    section of the listing further on. So every wave is spread over the whole listing more evenly than by chance (Weyl
    1916), and periods of the listing do not matter. Empty waves are left out, so few partitions give few waves. A
    partition without rows is in no wave. Where rows have to be seen in the order of the input, each wave follows the
    one before in the listing, too (``in_order``).

    Returns:
        For each wave the ascending ordinals of its partitions; every ordinal with rows exactly once.
    """
    filled_units = [ordinal for ordinal, count in enumerate(rows) if count]
    place = {ordinal: number * GOLDEN_SECTION % (1 << 32) for number, ordinal in enumerate(filled_units, start=1)}
    order = filled_units if in_order else sorted(filled_units, key=lambda ordinal: (place[ordinal], ordinal))
    total = sum(rows)
    targets = [reached / sum(weights) * total for reached in accumulate(weights)]
    waves: list[list[int]] = []
    filled = 0
    for target in targets[:-1]:
        wave = _leading(order, rows, target - filled) if in_order else _fitting(order, rows, target - filled)
        waves.append(wave)
        filled += sum(rows[ordinal] for ordinal in wave)
        taken = set(wave)
        order = [ordinal for ordinal in order if ordinal not in taken]
    waves.append(order)
    return tuple(tuple(sorted(wave)) for wave in waves if wave)


def _fitting(order: Sequence[int], rows: Sequence[int], room: float) -> list[int]:
    """The next partitions of which more than half fits into the room, as no giant one must; else the smallest one."""
    wave, left = [], room
    for ordinal in order:
        if left <= 0:
            break
        if rows[ordinal] / 2 < left:
            wave.append(ordinal)
            left -= rows[ordinal]
    return wave or [min(order, key=lambda ordinal: rows[ordinal])] if order else []


def _leading(order: Sequence[int], rows: Sequence[int], room: float) -> list[int]:
    """The next partitions, without gaps, as long as more than half of each fits into the room; at least one."""
    wave: list[int] = []
    left = room
    for ordinal in order:
        if wave and rows[ordinal] / 2 >= left:
            break
        wave.append(ordinal)
        left -= rows[ordinal]
    return wave
