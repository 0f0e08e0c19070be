"""A whole run without Spark: the real planner, stage by stage, over arrays of keys.

Every row goes where Spark would send it: same waves, same hashes, same row hashes, same order within a
task. A test holds both to each other, task by task.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from skewless.bounds import makespan
from skewless.documents.job import Algebra, Job, Unit
from skewless.documents.stage_report import Decision, Histogram, StageReport, TaskLoad
from skewless.planner.first_plan import first_plan
from skewless.planner.placement.placement import sums
from skewless.planner.planner import plan_next_stage
from skewless.routing.hashing import KEY_SEED, OFFSET_BITS, bucket_hash, finished, key_hash, mixed
from skewless.routing.plan import RoutingPlan, cut_waves
from skewless.spec.routing import Policy
from skewless.spec.spec import JobSpec

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

#: The number of a row without a key.
NULL = -1
MERGEABLE = Algebra(mergeable=True, ordered=False)
#: Above so many (task, key) pairs they are sorted rather than marked in a table.
_TABLE_LIMIT = 400_000_000


def simulated_spec(**routing: Any) -> JobSpec:
    """The smallest spec there is, with some routing fields and knobs of the policy set."""
    return JobSpec.model_validate(
        {
            "name": "simulation",
            "input": {"path": "in"},
            "key": "key",
            "aggregates": {"occurrences": "count"},
            "engine": "staged",
            "routing": routing_section(routing),
            "output": {"path": "out"},
        }
    )


def simulated_job(
    unit_rows: Sequence[int], *, in_order: bool = False, algebra: Algebra = MERGEABLE, **routing: Any
) -> Job:
    """A frozen job over source partitions of so many rows.

    Args:
        unit_rows: rows of each source partition.
        in_order: cut waves in the order of the partitions, and not, as ``prepare`` does, in an order
            that makes each wave a sample.
        algebra: of its one aggregate.
        routing: fields of the spec, and knobs of its policy.
    """
    spec = simulated_spec(**routing)
    names = [f"part-{number:06d}.parquet" for number in range(len(unit_rows))]
    weights = spec.routing.waves
    return Job(
        spec=spec,
        date=dt.date(2026, 1, 1),
        input_path="/in",
        output_path="/out",
        units=tuple(
            Unit(path=f"/in/{name}", rows=rows, size_bytes=1) for name, rows in zip(names, unit_rows, strict=True)
        ),
        waves=_consecutive(unit_rows, weights) if in_order else cut_waves(unit_rows, weights),
        key_types={"key": "string"},
        column_types={},
        algebra={"occurrences": algebra},
    )


def routing_section(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The section ``routing`` of a spec, from its fields and knobs of any policies beside them."""
    name, knobs = fields.get("policy", "adaptive"), Policy.told_apart() & fields.keys()
    rest = {field: value for field, value in fields.items() if field not in knobs}
    return {**rest, "policy": {"name": name, **{knob: fields[knob] for knob in knobs if Policy.takes(name, knob)}}}


def _consecutive(unit_rows: Sequence[int], weights: Sequence[float]) -> tuple[tuple[int, ...], ...]:
    """Waves of partitions as they come, of about these weights."""
    reached = np.cumsum(unit_rows)
    targets = np.cumsum(weights) / np.sum(weights) * reached[-1]
    cuts = [0, *(int(np.searchsorted(reached, target - 0.5)) + 1 for target in targets)]
    cuts[-1] = len(unit_rows)
    filled = [number for number, rows in enumerate(unit_rows) if rows]
    waves = (tuple(n for n in filled if low <= n < high) for low, high in pairwise(cuts))
    return tuple(wave for wave in waves if wave)


@dataclass
class Simulation:
    """One run over rows in memory.

    Attributes:
        job: its units have as many rows, in their order, as there are in ``rows``.
        texts: the key texts, by number.
        rows: the key number of each row, ``NULL`` for none, in the order of its origin.
        costs: seconds to reduce a row of each key, shape ``(len(texts),)``; 1 each by default.
        speeds: of each task of a plan, the last one's for all beyond; 1 each by default.
        overhead_seconds: what a stage takes beside its rows.
    """

    job: Job
    texts: Sequence[str]
    rows: Ints
    costs: Floats | None = None
    speeds: Floats | None = None
    overhead_seconds: float = 0.0
    plans: list[RoutingPlan] = field(default_factory=list)
    reports: list[StageReport] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)
    #: Rows each key had reduced, and when each stage's last task was done, in seconds without overhead.
    reduced: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    makespans: list[float] = field(default_factory=list)

    def play(self, plan: RoutingPlan | None = None) -> Simulation:
        """All stages, until the planner says that it is done."""
        self.reduced = np.zeros(len(self.texts) + 1, dtype=np.int64)
        self._spent = np.zeros(len(self.texts) + 1)
        self._names: dict[str, int] = {}
        next_plan: RoutingPlan | None = plan or first_plan(self.job)
        backlog, owners = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
        while next_plan is not None:
            plan = next_plan
            if self.plans and self.plans[-1].tasks != plan.tasks:
                owners = self._renumbered(self.plans[-1], plan, owners)
            queued, last_task = self._queue(plan, backlog, owners)
            tasks = self.tasks_of(plan, queued)
            forwarded = int(((tasks != last_task) & (last_task != _ADMITTED)).sum())
            kept = within_budget(tasks, len(plan.tasks), plan.budget_rows)
            self.plans.append(plan)
            self.reports.append(self._report(plan, queued, tasks, kept, len(backlog), forwarded))
            backlog, owners = queued[~kept], tasks[~kept]
            self.decisions.append(plan_next_stage(self.job, plan, self.reports[-1], self.reports[:-1]))
            next_plan = self.decisions[-1].next_plan
        return self

    # What goes where.

    @cached_property
    def _unit_starts(self) -> Ints:
        return np.cumsum([0, *(unit.rows for unit in self.job.units)])

    @cached_property
    def _hashes(self) -> tuple[Ints, Ints]:
        count = len(self.texts)
        return (
            np.fromiter(map(key_hash, self.texts), dtype=np.int64, count=count),
            np.fromiter(map(bucket_hash, self.texts), dtype=np.int64, count=count),
        )

    @cached_property
    def _number(self) -> dict[str, int]:
        return {text: number for number, text in enumerate(self.texts)}

    @cached_property
    def _text_rank(self) -> Ints:
        """The place of each key in the order of their texts, as UTF-8."""
        ranks = np.empty(len(self.texts), dtype=np.int64)
        ranks[sorted(range(len(self.texts)), key=lambda number: self.texts[number].encode())] = np.arange(
            len(self.texts)
        )
        return ranks

    def _queue(self, plan: RoutingPlan, backlog: Ints, owners: Ints) -> tuple[Ints, Ints]:
        """Row numbers of backlog and waves, ascending, and for each its task in the last plan, if it had one."""
        starts = self._unit_starts
        admitted = [np.arange(starts[unit], starts[unit + 1]) for unit in self.job.admitted_units(plan.waves)]
        queued = np.concatenate([backlog, *admitted])
        last_task = np.full(len(queued), _ADMITTED)
        last_task[: len(backlog)] = owners
        if not len(backlog):
            return queued, last_task
        order = np.argsort(queued, kind="stable")
        return queued[order], last_task[order]

    def _renumbered(self, last: RoutingPlan, plan: RoutingPlan, owners: Ints) -> Ints:
        now = {task: number for number, task in enumerate(plan.tasks)}
        return np.array([now.get(task, -1) for task in last.tasks], dtype=np.int64)[owners]

    def tasks_of(self, plan: RoutingPlan, queued: Ints) -> Ints:
        """``plan.task_of`` for many rows at once."""
        ring, bucket = self._hashes
        slots = ring >> (32 - plan.ring.ring_bits)
        by_key = np.append(plan.slot_tasks[slots] + bucket % plan.slot_factors[slots], 0)
        drawn_by_key = np.zeros(len(self.texts) + 1, dtype=bool)
        drawn_by_key[NULL] = True
        split = {}
        for key, shares in plan.head.items():
            number = self._number.get(key)
            if number is None:
                continue
            by_key[number] = shares[0][0]
            if len(shares) > 1:
                split[number] = shares
                drawn_by_key[number] = True
        numbers = self.rows[queued]
        tasks: Ints = by_key[numbers].astype(np.int64)
        at = np.flatnonzero(drawn_by_key[numbers])
        at = at[np.argsort(numbers[at], kind="stable")]
        drawn = row_hashes(self._origins(queued[at]), plan.share_salt)
        begins = np.flatnonzero(np.diff(numbers[at], prepend=-2))
        for begin, end in pairwise([*begins.tolist(), len(at)]):
            number = int(numbers[at[begin]])
            mine = slice(begin, end)
            if number == NULL:
                tasks[at[mine]] = (drawn[mine] * len(plan.tasks)) >> 32
                continue
            owners, weights = np.array(split[number]).T
            tasks[at[mine]] = owners[np.searchsorted(np.cumsum(weights), drawn[mine] >> 16, side="right")]
        return tasks

    def _origins(self, rows: Ints) -> Ints:
        unit = np.searchsorted(self._unit_starts, rows, side="right") - 1
        return (unit << OFFSET_BITS) | (rows - self._unit_starts[unit])

    # What is reported.

    def _report(
        self, plan: RoutingPlan, queued: Ints, tasks: Ints, kept: Mask, came: int, forwarded: int
    ) -> StageReport:
        count, keys = len(plan.tasks), len(self.texts)
        numbers = np.where(self.rows[queued] == NULL, keys, self.rows[queued])
        done = np.bincount(numbers[kept], minlength=keys + 1)
        self.reduced += done
        left = np.bincount(numbers[~kept], minlength=keys + 1)
        queued_rows, processed = (np.bincount(part, minlength=count) for part in (tasks, tasks[kept]))
        busy = self._busy_seconds(numbers[kept], tasks[kept], processed)
        self.makespans.append(makespan(busy, self.job.slots_at()))
        states = self._count_states(plan, numbers[kept], tasks[kept])
        return StageReport(
            stage=plan.epoch,
            waves=plan.waves,
            admitted_rows=len(queued) - came,
            backlog_in_rows=came,
            forwarded_rows=forwarded,
            processed_rows=int(processed.sum()),
            backlog_rows=int(left.sum()),
            stage_seconds=self.overhead_seconds + self.makespans[-1],
            tasks=tuple(
                TaskLoad(task=str(task), queued_rows=q, processed_rows=p, backlog_rows=q - p, states=s, busy_seconds=b)
                for task, q, p, s, b in zip(
                    plan.tasks, queued_rows.tolist(), processed.tolist(), states.tolist(), busy.tolist(), strict=True
                )
            ),
            histogram=self._histogram(plan, left),
        )

    def _busy_seconds(self, numbers: Ints, tasks: Ints, processed: Ints) -> Floats:
        if self.costs is None:
            busy = processed.astype(np.float64)
        else:
            costs = np.append(self.costs, self.costs.mean() if len(self.costs) else 1.0)
            busy = sums(tasks, costs[numbers], len(processed))
            self._spent += sums(numbers, costs[numbers], len(costs))
        if self.speeds is None:
            return busy
        speeds = np.full(len(busy), self.speeds[-1])
        speeds[: len(self.speeds)] = self.speeds[: len(busy)]
        return busy / speeds

    def _count_states(self, plan: RoutingPlan, numbers: Ints, tasks: Ints) -> Ints:
        """Partial states of each task in this stage; the run's distinct ones are kept in ``state_pairs``."""
        keys = len(self.texts) + 1
        if len(plan.tasks) * keys <= _TABLE_LIMIT:
            table = np.zeros(len(plan.tasks) * keys, dtype=bool)
            table[tasks * keys + numbers] = True
            pairs = np.flatnonzero(table)
        else:
            pairs = _distinct(tasks * keys + numbers)
        at, number = np.divmod(pairs, keys)
        names = np.array([self._names.setdefault(str(task), len(self._names)) for task in plan.tasks])
        self._pairs.append(names[at] * keys + number)
        return np.bincount(at, minlength=len(plan.tasks))

    @cached_property
    def _pairs(self) -> list[Ints]:
        return []

    @property
    def state_pairs(self) -> int:
        """Distinct pairs of virtual task and key in the run's states."""
        return len(_distinct(np.concatenate(self._pairs))) if self._pairs else 0

    def _histogram(self, plan: RoutingPlan, left: Ints) -> Histogram:
        seen = self.reduced + left
        null_seen, null_left = int(seen[-1]), int(left[-1])
        seen, left = seen[:-1], left[:-1]
        share = np.maximum(seen / max(1, int(seen.sum()) + null_seen), left / max(1, int(left.sum())))
        head = self._heaviest(share)
        slots = self._hashes[0] >> (32 - plan.ring.ring_bits)
        tail = np.ones(len(seen), dtype=bool)
        tail[head] = False
        size = 1 << plan.ring.ring_bits
        spent = {} if self.costs is None else {self.texts[n]: float(self._spent[n]) for n in head.tolist()}
        return Histogram(
            seen_rows=int(seen.sum()) + null_seen,
            seen_null_rows=null_seen,
            backlog_null_rows=null_left,
            head={self.texts[n]: (int(seen[n]), int(left[n])) for n in head.tolist()},
            seen_tail=np.bincount(slots[tail], seen[tail], size).astype(int),
            backlog_tail=np.bincount(slots[tail], left[tail], size).astype(int),
            head_seconds=spent,
            tail_seconds=None if self.costs is None else max(0.0, float(self._spent.sum()) - sum(spent.values())),
            keys=int(np.count_nonzero(seen)),
        )

    def _heaviest(self, share: Floats) -> Ints:
        """The keys with the largest shares, ties by text."""
        limit = min(self.job.spec.routing.head_limit, int(np.count_nonzero(share)))
        if not limit:
            return np.zeros(0, dtype=np.int64)
        border = np.partition(share, len(share) - limit)[len(share) - limit]
        some = np.flatnonzero(share >= border)
        return some[np.lexsort((self._text_rank[some], -share[some]))][:limit]


_ADMITTED = -2


def _distinct(values: Ints) -> Ints:
    """``np.unique`` by a sort, which is several times faster than by hashes where few values are alike."""
    ordered = np.sort(values)
    return ordered[np.diff(ordered, prepend=-1) != 0]


def within_budget(tasks: Ints, count: int, budget_rows: int | None) -> Mask:
    """Which rows are reduced: the first of each task, up to the budget.

    Args:
        tasks: of each row, in the order in which a task takes its rows.
        count: how many tasks there are.
        budget_rows: None keeps all.
    """
    kept = np.ones(len(tasks), dtype=bool)
    if budget_rows is None:
        return kept
    full = np.bincount(tasks, minlength=count) > budget_rows
    at = np.flatnonzero(full[tasks])
    if not len(at):
        return kept
    small = np.int16 if count < np.iinfo(np.int16).max else np.int64  # short integers are sorted by radix
    order = at[np.argsort(tasks[at].astype(small), kind="stable")]
    sizes = np.bincount(tasks[order], minlength=count)
    place = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    kept[order[place >= budget_rows]] = False
    return kept


def row_hashes(origins: Ints, salt: int) -> Ints:
    """``RoutingPlan.row_hash`` of many origins, shape as given."""
    blocks = origins >> 2
    low = (blocks & 0xFFFFFFFF).astype(np.uint32)
    high = (blocks >> 32).astype(np.uint32)
    state = np.full(len(origins), KEY_SEED, dtype=np.uint32)
    hashed = finished(mixed(mixed(state, low), high), 8)
    salted = mixed(hashed, np.full(len(origins), salt, dtype=np.uint32))
    block = finished(salted, 4).astype(np.int64)
    return (block + ((origins & 3) << 30)) & 0xFFFFFFFF
