"""The job of a run in short, and its stages: the load of tasks, counts, hottest keys."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from skewless.documents.job import Job
from skewless.documents.ledger import LedgerLine
from skewless.documents.stage_report import Histogram, StageReport
from skewless.run.certificate import StageFigures, stage_certificate, stage_figures
from skewless.run.directory import RunDirectory
from skewless.run.step_names import last_step_of
from skewless_airflow.web.run_folders import kept_by, stamp
from skewless_airflow.web.views.decision_view import read_plan

_JOB = "job.json"
#: How many tasks and keys a page names; all others are added up.
MOST_TASKS, MOST_KEYS = 60, 50
#: How many of its tasks the name of a slot has.
_NAMED_TASKS = 3


@dataclass(frozen=True)
class AggregateView:
    """One aggregate of the spec."""

    name: str
    function: str
    column: str | None
    mergeable: bool
    ordered: bool


@dataclass(frozen=True)
class JobView:
    """What a run computes, from what."""

    name: str
    description: str
    date: str
    extent: str
    input_path: str
    output_path: str
    key: tuple[str, ...]
    aggregates: tuple[AggregateView, ...]
    policy: str
    engine: str
    reducers: int
    slots: int
    wave_rows: tuple[int, ...]
    splittable: bool
    last_stage: int
    last_step: str
    warm_from: tuple[str, ...]
    skipped_words: str


@kept_by(_JOB)
def read_job(run: RunDirectory) -> JobView:
    """The job, if ``prepare`` has written it."""
    job = whole_job(run)
    spec, routing = job.spec, job.spec.routing
    return JobView(
        name=spec.name,
        description=spec.description,
        date=str(job.part),
        extent=job.extent,
        input_path=job.input_path,
        output_path=job.output_path,
        key=spec.key,
        aggregates=tuple(
            AggregateView(name, call.function, call.column, job.algebra[name].mergeable, job.algebra[name].ordered)
            for name, call in spec.aggregates.items()
            if name in job.algebra
        ),
        policy=routing.policy.name,
        engine=spec.engine,
        reducers=routing.reducers,
        slots=routing.parallelism,
        wave_rows=tuple(job.wave_rows(wave) for wave in range(len(job.waves))),
        splittable=job.splittable,
        last_stage=job.last_stage,
        last_step=last_step_of(spec).name,
        warm_from=job.warm_from,
        skipped_words=job.skipped_words,
    )


def whole_job(run: RunDirectory) -> Job:
    """The document itself; the last few are cached, because every stage needs it."""
    return _job(run.path(""), stamp(run, _JOB))


@lru_cache(maxsize=4)
def _job(location: str, _mark: str | None) -> Job:
    return RunDirectory(location).job()


@dataclass(frozen=True)
class TaskView:
    """The load of one task, in rows; ``queued = processed + backlog``."""

    task: str
    queued: int
    processed: int
    backlog: int
    states: int | None
    busy_seconds: float | None


@dataclass(frozen=True)
class HotKey:
    """A key of the head: its rows in all stages so far, and what is left of them."""

    key: str
    seen: int
    backlog: int


@dataclass(frozen=True)
class StageView:
    """One committed stage; if nothing was routed, its input splits are shown as its tasks.

    Attributes:
        source_rows: lines or rows that were read of the input, where the listing does not say how many there are.
        even_share: the rows processed over the slots, which no largest load is below.
        side_by_side: the loads that the stage waited for, longest first: of its tasks, or where there are more of them
            than slots, of the slots, each with the tasks that it takes one after another.
        fair_queued: mean of the rows that tasks had queued.
        max_over_mean: the largest task's processed rows over the mean.
        queued_over_mean: the same for queued rows.
        gap: how far the stage was above the lower bound, as a fraction; None, like ``max_over_mean``, if not measured.
        largest: the tasks with the longest queues, longest first.
        rest: all other tasks, added up; ``rest_tasks`` of them.
        hottest: keys with the most rows so far, most first.
        named_keys: how many keys the report names, and ``named_rows`` how many rows they have so far.
    """

    stage: int
    engine: str
    waves: tuple[int, int]
    admitted: int
    backlog_in: int
    forwarded: int
    processed: int
    backlog: int
    states: int | None
    seconds: float
    source_rows: int | None
    tasks: int
    slots: int
    even_share: float
    side_by_side: tuple[TaskView, ...]
    fair_queued: float
    max_over_mean: float | None
    queued_over_mean: float
    gap: float | None
    largest: tuple[TaskView, ...]
    rest: TaskView
    rest_tasks: int
    seen: int
    seen_null: int
    named_keys: int
    named_rows: int
    hottest: tuple[HotKey, ...]
    hottest_backlog: tuple[HotKey, ...]
    line: LedgerLine
    figures: StageFigures


def read_stages(run: RunDirectory) -> list[StageView]:
    """All committed stages, from 0 without a gap."""
    found: list[StageView] = []
    while (stage := read_stage(run, len(found))) is not None:
        found.append(stage)
    return found


@kept_by("stages/{:04d}/COMMIT.json")
def read_stage(run: RunDirectory, stage: int) -> StageView:
    """A stage, if it has committed."""
    job, report = whole_job(run), run.report(stage, tails=False)
    loads = _loads(report)
    queued = np.array([load.queued for load in loads], dtype=np.float64)
    fair = float(queued.mean()) if len(queued) else 0.0
    largest, rest = _largest(loads)
    slots = job.spec.routing.parallelism
    return StageView(
        stage=stage,
        engine=(read_plan(run, stage) or run.plan(stage)).engine,  # the second one says what is missing
        waves=report.waves,
        admitted=report.admitted_rows,
        backlog_in=report.backlog_in_rows,
        forwarded=report.forwarded_rows,
        processed=report.processed_rows,
        backlog=report.backlog_rows,
        states=_states(loads),
        seconds=report.stage_seconds,
        source_rows=report.source_rows,
        tasks=len(loads),
        slots=slots,
        even_share=report.processed_rows / slots,
        side_by_side=_largest(_slots(loads, slots))[0] if len(loads) > slots else largest,
        fair_queued=fair,
        max_over_mean=report.max_over_mean,
        queued_over_mean=float(queued.max()) / fair if fair else 1.0,
        gap=stage_certificate(job, report).gap,
        largest=largest,
        rest=rest,
        rest_tasks=len(loads) - len(largest),
        seen=report.histogram.seen_rows,
        seen_null=report.histogram.seen_null_rows,
        named_keys=len(report.histogram.head),
        named_rows=sum(seen for seen, _ in report.histogram.head.values()),
        hottest=_hottest(report.histogram, which=0),
        hottest_backlog=_hottest(report.histogram, which=1)[:5],
        line=LedgerLine.of(job, report),
        figures=stage_figures(job, report),
    )


def _loads(report: StageReport) -> list[TaskView]:
    if report.tasks:
        return [
            TaskView(one.task, one.queued_rows, one.processed_rows, one.backlog_rows, one.states, one.busy_seconds)
            for one in report.tasks
        ]
    return [
        TaskView(f"split {number}", split.rows, split.rows, 0, split.states, split.busy_seconds)
        for number, split in enumerate(report.splits)
    ]


def _slots(loads: Sequence[TaskView], slots: int) -> list[TaskView]:
    """The loads of slots that take the tasks in order, each as soon as it is free: as ``bounds.makespan`` has it."""
    taken: list[list[TaskView]] = [[] for _ in range(slots)]
    free = [(0, slot) for slot in range(slots)]
    for load in loads:
        rows, slot = free[0]
        taken[slot].append(load)
        heapq.heapreplace(free, (rows + load.processed, slot))
    return [_together(_slot_name(slot, tasks), tasks) for slot, tasks in enumerate(taken)]


def _slot_name(slot: int, tasks: Sequence[TaskView]) -> str:
    """A slot by those of its tasks that have rows."""
    busy = [task.task for task in tasks if task.queued]
    more = f" and {len(busy) - _NAMED_TASKS:,} more" if len(busy) > _NAMED_TASKS else ""
    return f"slot {slot} ({', '.join(busy[:_NAMED_TASKS])}{more})" if busy else f"slot {slot}"


def _together(name: str, loads: Sequence[TaskView]) -> TaskView:
    busy = [load.busy_seconds for load in loads if load.busy_seconds is not None]
    return TaskView(
        name,
        sum(load.queued for load in loads),
        sum(load.processed for load in loads),
        sum(load.backlog for load in loads),
        _states(loads),
        sum(busy) if busy else None,
    )


def _states(loads: Sequence[TaskView]) -> int | None:
    """The partial states of all tasks; None if those of any task were not counted."""
    states = [load.states for load in loads if load.states is not None]
    return sum(states) if loads and len(states) == len(loads) else None


def _largest(loads: Sequence[TaskView]) -> tuple[tuple[TaskView, ...], TaskView]:
    order = sorted(loads, key=lambda load: -load.queued)
    return tuple(order[:MOST_TASKS]), _together("all others", order[MOST_TASKS:])


def _hottest(histogram: Histogram, which: int) -> tuple[HotKey, ...]:
    """The keys with the most rows seen (0) or left over (1)."""
    some = heapq.nlargest(MOST_KEYS, histogram.head.items(), key=lambda item: (item[1][which], item[0]))
    return tuple(HotKey(key, seen, left) for key, (seen, left) in some if (seen, left)[which])
