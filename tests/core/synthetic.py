"""Jobs, reports and whole runs without Spark: keys with exact counts, reduced by arithmetic alone."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import mmh3
import numpy as np
import numpy.typing as npt

from skewless.decision import Decision
from skewless.job import Algebra, Job, Unit
from skewless.planner import first_plan, plan_next_stage
from skewless.routing_plan import WHOLE_SHARE, RoutingPlan
from skewless.spec import JobSpec
from skewless.stage_report import Histogram, StageReport, TaskLoad

Counts = npt.NDArray[np.int64]

MERGEABLE = Algebra(mergeable=True, ordered=False)
WHOLE = Algebra(mergeable=False, ordered=False)


def spec(**routing: Any) -> JobSpec:
    """The smallest spec there is, with some routing fields set."""
    return JobSpec.model_validate(
        {
            "name": "synthetic",
            "input": {"path": "in"},
            "key": "key",
            "aggregates": {"occurrences": "count"},
            "routing": routing,
            "output": {"path": "out"},
        }
    )


def job(wave_rows: Sequence[int], algebra: Algebra = MERGEABLE, output_path: str = "/out", **routing: Any) -> Job:
    """A frozen job of one unit per wave, with the rows given."""
    return Job(
        spec=spec(**routing),
        date=dt.date(2026, 11, 20),
        input_path="/in",
        output_path=output_path,
        units=tuple(
            Unit(path=f"/in/{number}.parquet", rows=rows, size_bytes=1) for number, rows in enumerate(wave_rows)
        ),
        waves=tuple((number,) for number in range(len(wave_rows))),
        key_types={"key": "string"},
        column_types={},
        algebra={"occurrences": algebra},
    )


def report(
    plan: RoutingPlan,
    seen: Mapping[str, int],
    backlog: Mapping[str, int] | None = None,
    head: Sequence[str] | None = None,
) -> StageReport:
    """A consistent report of a stage that saw these keys and left these rows, each where the plan puts it.

    Args:
        plan: the stage's plan; split keys' backlog is laid to their first task.
        seen: rows of each key, all stages so far.
        backlog: rows of each key that are left over.
        head: the keys reported one by one; all of them by default.
    """
    left = dict(backlog or {})
    named = list(seen) if head is None else list(head)
    slots = 1 << plan.ring.ring_bits
    seen_tail, left_tail = [0] * slots, [0] * slots
    for key in set(seen) - set(named):
        seen_tail[plan.ring.slot_of(key)] += seen[key]
        left_tail[plan.ring.slot_of(key)] += left.get(key, 0)
    loads = [0] * len(plan.tasks)
    for key, rows in left.items():
        loads[plan.head[key][0][0] if key in plan.head else plan.tail_task(key)] += rows
    total, over = sum(seen.values()), sum(left.values())
    return StageReport(
        stage=plan.epoch,
        admitted_rows=total,
        backlog_in_rows=0,
        forwarded_rows=0,
        processed_rows=total - over,
        backlog_rows=over,
        stage_seconds=1.0,
        tasks=tuple(
            TaskLoad(task=str(task), queued_rows=rows, processed_rows=0, backlog_rows=rows, states=0)
            for task, rows in zip(plan.tasks, loads, strict=True)
        ),
        histogram=Histogram(
            seen_rows=total,
            seen_null_rows=0,
            backlog_null_rows=0,
            head={key: (seen.get(key, 0), left.get(key, 0)) for key in named},
            seen_tail=tuple(seen_tail),
            backlog_tail=tuple(left_tail),
        ),
    )


def zipf_rows(keys: int, exponent: float, rows: int) -> Counts:
    """Rows of each key, heaviest first, by Zipf's law; every key at least once."""
    weights = np.arange(1, keys + 1, dtype=np.float64) ** -exponent
    counts: Counts = np.maximum(1, np.round(weights / weights.sum() * rows)).astype(np.int64)
    return counts


@dataclass
class SyntheticRun:
    """A run over rows in memory: the same stages as on Spark, counted exactly.

    Attributes:
        keys: the key texts.
        rows: the key number of each row, in the order of its origin; wave boundaries follow from the job.
        job: the frozen job.
    """

    keys: Sequence[str]
    rows: Counts
    job: Job
    plans: list[RoutingPlan] = field(default_factory=list)
    reports: list[StageReport] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)
    reduced: Counts = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    @classmethod
    def of(cls, counts: Counts, waves: Sequence[float], **routing: Any) -> SyntheticRun:
        """A run over keys ``key-0``, ``key-1``, ... with these rows, well mixed, in waves of these weights."""
        numbers = np.repeat(np.arange(len(counts)), counts)
        order = np.argsort(_murmur_of_long(np.arange(len(numbers))), kind="stable")
        cuts = np.round(np.cumsum(waves) / np.sum(waves) * len(numbers)).astype(int)
        sizes = np.diff(cuts, prepend=0).tolist()
        return cls([f"key-{n}" for n in range(len(counts))], numbers[order], job(sizes, waves=tuple(waves), **routing))

    def play(self) -> SyntheticRun:
        """All stages, until the planner says that it is done."""
        self.reduced = np.zeros(len(self.keys), dtype=np.int64)
        plan: RoutingPlan | None = first_plan(self.job)
        origins = np.arange(len(self.rows))
        backlog, owners = origins[:0], origins[:0]
        while plan is not None:
            start = self.job.rows_before(plan.epoch)
            queued = np.concatenate([backlog, origins[start : start + self.job.wave_rows(plan.epoch)]])
            tasks = self.tasks_of(plan, queued)
            forwarded = int((tasks[: len(backlog)] != owners).sum())
            kept = _within_budget(tasks, plan.budget_rows)
            self.reduced += np.bincount(self.rows[queued[kept]], minlength=len(self.keys))
            came = len(backlog)
            backlog, owners = queued[~kept], tasks[~kept]
            self.plans.append(plan)
            self.reports.append(self._report(plan, tasks, kept, came, forwarded, backlog))
            self.decisions.append(plan_next_stage(self.job, plan, self.reports[-1]))
            plan = self.decisions[-1].next_plan
        return self

    def tasks_of(self, plan: RoutingPlan, origins: Counts) -> Counts:
        """``plan.task_of`` for many rows at once."""
        numbers = self.rows[origins]
        whole = [plan.head[key][0][0] if key in plan.head else plan.tail_task(key) for key in self.keys]
        tasks: Counts = np.array(whole, dtype=np.int64)[numbers]
        split = {number: plan.head[key] for number, key in enumerate(self.keys) if len(plan.head.get(key, ())) > 1}
        for number, shares in split.items():
            mine = np.flatnonzero(numbers == number)
            drawn = np.array([plan.draw(int(origin)) >> 16 for origin in origins[mine]], dtype=np.int64)
            ends = np.cumsum([weight for _, weight in shares])
            assert ends[-1] == WHOLE_SHARE
            tasks[mine] = np.array([task for task, _ in shares])[np.searchsorted(ends, drawn, side="right")]
        return tasks

    def _report(
        self, plan: RoutingPlan, tasks: Counts, kept: npt.NDArray[np.bool_], came: int, forwarded: int, backlog: Counts
    ) -> StageReport:
        admitted = self.job.rows_before(plan.epoch + 1)
        seen = np.bincount(self.rows[:admitted], minlength=len(self.keys))
        left = np.bincount(self.rows[backlog], minlength=len(self.keys))
        share = np.maximum(seen / max(1, seen.sum()), left / max(1, left.sum()))
        head = np.argsort(-share, kind="stable")[: self.job.spec.routing.head_limit]
        head = head[share[head] > 0]
        slots = np.array([plan.ring.slot_of(key) for key in self.keys])
        tail = np.ones(len(self.keys), dtype=bool)
        tail[head] = False
        queued, processed = (np.bincount(part, minlength=len(plan.tasks)).tolist() for part in (tasks, tasks[kept]))
        size = 1 << plan.ring.ring_bits
        return StageReport(
            stage=plan.epoch,
            admitted_rows=len(tasks) - came,
            backlog_in_rows=came,
            forwarded_rows=forwarded,
            processed_rows=sum(processed),
            backlog_rows=len(backlog),
            stage_seconds=0.0,
            tasks=tuple(
                TaskLoad(task=str(task), queued_rows=q, processed_rows=p, backlog_rows=q - p, states=0)
                for task, q, p in zip(plan.tasks, queued, processed, strict=True)
            ),
            histogram=Histogram(
                seen_rows=admitted,
                seen_null_rows=0,
                backlog_null_rows=0,
                head={self.keys[number]: (int(seen[number]), int(left[number])) for number in head.tolist()},
                seen_tail=tuple(np.bincount(slots[tail], seen[tail], size).astype(int).tolist()),
                backlog_tail=tuple(np.bincount(slots[tail], left[tail], size).astype(int).tolist()),
            ),
        )


def _within_budget(tasks: Counts, budget_rows: int | None) -> npt.NDArray[np.bool_]:
    """Which rows are reduced: the first of each task, up to the budget."""
    if budget_rows is None:
        return np.ones(len(tasks), dtype=bool)
    order = np.argsort(tasks, kind="stable")
    sizes = np.bincount(tasks)
    place = np.arange(len(tasks)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    kept = np.empty(len(tasks), dtype=bool)
    kept[order] = place < budget_rows
    return kept


def _murmur_of_long(numbers: Counts) -> npt.NDArray[np.uint32]:
    return np.array([mmh3.hash(number.tobytes(), 7, signed=False) for number in numbers], dtype=np.uint32)
