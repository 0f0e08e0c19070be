"""The stages of a run, the load of their tasks and their hottest keys, and the decision before each."""

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from skewless.bounds import StageFigures, stage_certificate, stage_figures
from skewless.documents.ledger import LedgerLine
from skewless.documents.stage_report import Candidate, Certificate, EngineChoice, Histogram, StageReport
from skewless.routing.plan import WHOLE_WEIGHT, RoutingPlan
from skewless.run.directory import RunDirectory
from skewless_airflow.web.runs import T, kept_by, stamp, view_of
from skewless_airflow.web.views.job_view import whole_job

#: How many tasks, keys and candidates a page names; all others are added up, or counted.
MOST_TASKS, MOST_KEYS, MOST_CANDIDATES = 60, 50, 40
_NAMED_TASKS, _QUARTILES = 3, (0, 0.25, 0.5, 0.75, 1)


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
    """A key of the head: its rows in all stages so far, what is left of them, and the tasks that it goes to."""

    key: str
    seen: int
    backlog: int
    goes: str = ""


@dataclass(frozen=True)
class StageView:
    """One committed stage; if nothing was routed, its input splits are shown as its tasks."""

    stage: int
    engine: str
    waves: tuple[int, int]
    admitted: int
    backlog_in: int
    forwarded: int
    processed: int
    backlog: int
    states: int | None
    source_rows: int | None
    """Lines or rows of the input before a map, where these may be other ones than those admitted."""
    tasks: int
    slots: int
    even_share: float
    """The rows processed over the slots, which no largest load is below."""
    side_by_side: tuple[TaskView, ...]
    """The loads that the stage waited for, longest first: of its tasks, or where there are more of them than slots, of
    the slots, each with the tasks that it takes one after another."""
    max_over_mean: float | None
    """The largest task's processed rows over the mean."""
    queued_over_mean: float
    """The same for queued rows."""
    busy: tuple[float, ...]
    """The least, the quartiles and the most of the seconds of its tasks; none where these were not measured."""
    gap: float | None
    """How far the stage was above the lower bound, as a fraction; None, like ``max_over_mean``, if not measured."""
    largest: tuple[TaskView, ...]
    """The tasks with the longest queues, longest first."""
    rest: TaskView
    """All other tasks, added up; ``rest_tasks`` of them."""
    rest_tasks: int
    seen: int
    seen_null: int
    named_keys: int
    """How many keys the report names, and ``named_rows`` how many rows they have so far."""
    named_rows: int
    hottest: tuple[HotKey, ...]
    """Keys with the most rows so far, most first."""
    hottest_backlog: tuple[HotKey, ...]
    line: LedgerLine
    figures: StageFigures


def of_stages(run: RunDirectory, read: Callable[[RunDirectory, int], T | None]) -> list[T]:
    """What is read of each committed stage, from 0 without a gap."""
    stages: list[T] = []
    while (stage := read(run, len(stages))) is not None:
        stages.append(stage)
    return stages


@kept_by("stages/{:04d}/COMMIT.json")
def read_stage(run: RunDirectory, stage: int) -> StageView:
    """A stage, if it has committed."""
    job, report = whole_job(run), run.report(stage, tails=False)
    slots, histogram, loads = job.slots_at(report), report.histogram, _loads(report)
    queued = np.array([load.queued for load in loads], dtype=np.float64)
    largest, rest = _largest(loads)
    return view_of(
        StageView, report, engine=(read_plan(run, stage) or run.plan(stage)).engine, admitted=report.admitted_rows,
        backlog_in=report.backlog_in_rows, forwarded=report.forwarded_rows, processed=report.processed_rows,
        backlog=report.backlog_rows, states=_states(loads), tasks=len(loads), slots=slots,
        even_share=report.processed_rows / slots,
        side_by_side=_largest(_slots(loads, slots))[0] if len(loads) > slots else largest,
        queued_over_mean=float(queued.max() / queued.mean()) if queued.any() else 1.0,
        busy=() if (busy := report.busy_seconds) is None else tuple(np.quantile(busy, _QUARTILES).tolist()),
        gap=stage_certificate(job, report).gap, largest=largest, rest=rest, rest_tasks=len(loads) - len(largest),
        seen=histogram.seen_rows, seen_null=histogram.seen_null_rows, named_keys=len(histogram.head),
        named_rows=sum(seen for seen, _ in histogram.head.values()), hottest=_hottest(histogram, which=0),
        hottest_backlog=_hottest(histogram, which=1)[:5], line=LedgerLine.of(job, report),
        figures=stage_figures(job, report),
    )  # fmt: skip


@kept_by("stages/{:04d}/COMMIT.json", most=8192)
def read_figures(run: RunDirectory, stage: int) -> tuple[int, StageFigures]:
    """The forwarded rows of a committed stage and its figures, for lists of runs: without its tasks and keys."""
    report = run.report(stage, tails=False)
    return report.forwarded_rows, stage_figures(whole_job(run), report)


@kept_by("plans/{:04d}.json", most=8192)
def read_engine(run: RunDirectory, epoch: int) -> str:
    """The engine of a plan, if it was written."""
    return run.plan(epoch).engine


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
    busy = [task.task for task in tasks if task.queued]
    more = f" and {len(busy) - _NAMED_TASKS:,} more" if len(busy) > _NAMED_TASKS else ""
    return f"slot {slot} ({', '.join(busy[:_NAMED_TASKS])}{more})" if busy else f"slot {slot}"


def _together(name: str, loads: Sequence[TaskView]) -> TaskView:
    queued, processed, backlog = (
        sum(getattr(load, rows) for load in loads) for rows in ("queued", "processed", "backlog")
    )
    busy = [load.busy_seconds for load in loads if load.busy_seconds is not None]
    return TaskView(name, queued, processed, backlog, _states(loads), sum(busy) if busy else None)


def _states(loads: Sequence[TaskView]) -> int | None:
    states = [load.states for load in loads if load.states is not None]
    return sum(states) if loads and len(states) == len(loads) else None


def _largest(loads: Sequence[TaskView]) -> tuple[tuple[TaskView, ...], TaskView]:
    order = sorted(loads, key=lambda load: -load.queued)
    return tuple(order[:MOST_TASKS]), _together("all others", order[MOST_TASKS:])


def _hottest(histogram: Histogram, which: int) -> tuple[HotKey, ...]:
    some = heapq.nlargest(MOST_KEYS, histogram.head.items(), key=lambda item: (item[1][which], item[0]))
    return tuple(HotKey(key, seen, left) for key, (seen, left) in some if (seen, left)[which])


@dataclass(frozen=True)
class PlanView:
    """A routing plan in numbers."""

    epoch: int
    policy: str
    engine: str
    waves: tuple[int, int]
    """The waves that the stage admits, ``first <= wave < end``."""
    tasks: int
    budget: int | None
    pinned: int
    split: int
    factors: int
    reducers: int
    tokens: int
    sentence: str


@dataclass(frozen=True)
class DecisionView:
    """A decision about a stage."""

    stage: int
    policy: str
    sentence: str
    queued: int
    engine: EngineChoice | None
    certificate: Certificate | None
    candidates: tuple[Candidate, ...]
    """By their cost, after the one that was chosen."""
    more_candidates: int
    after: PlanView | None
    """The plan that follows; None where no further stage is needed."""


def decided_stages(run: RunDirectory, last_stage: int) -> list[int]:
    """The stages that have a decision; the last one may say that no further stage is needed."""
    return [stage for stage in range(last_stage + 2) if run.exists(f"decisions/{stage:04d}.json")]


@kept_by("plans/{:04d}.json")
def read_plan(run: RunDirectory, epoch: int) -> PlanView:
    """A plan, if it was written."""
    return _plan(run.plan(epoch))


@kept_by("decisions/{:04d}.json")
def read_decision(run: RunDirectory, stage: int) -> DecisionView:
    """The decision about a stage, if there is one."""
    decision = run.decision(stage)
    best = sorted(decision.candidates, key=lambda option: (not option.chosen, option.cost_rows))
    return view_of(
        DecisionView, decision, queued=decision.queued_rows,
        candidates=tuple(best[:MOST_CANDIDATES]), more_candidates=max(0, len(decision.candidates) - MOST_CANDIDATES),
        after=_plan(decision.next_plan) if decision.next_plan else None,
    )  # fmt: skip


def _plan(plan: RoutingPlan) -> PlanView:
    split = sum(len(shares) > 1 and len({task for task, _ in shares}) > 1 for shares in plan.head.values())
    return view_of(
        PlanView, plan, tasks=plan.task_count, budget=plan.budget_rows, pinned=len(plan.head) - split, split=split,
        factors=sum(factor > 1 for factor in plan.factors.values()), reducers=len(plan.ring.tokens),
        tokens=sum(plan.ring.tokens.values()),
    )  # fmt: skip


def where_keys_go(run: RunDirectory, keys: tuple[str, ...]) -> tuple[int, tuple[str, ...]]:
    """The epoch of the latest plan, and in words to which tasks it sends each key."""
    epoch = 0
    while stamp(run, f"plans/{epoch + 1:04d}.json"):
        epoch += 1
    return epoch, _where(run, epoch, keys) or ("",) * len(keys)


@kept_by("plans/{:04d}.json", most=256)
def _where(run: RunDirectory, epoch: int, keys: tuple[str, ...]) -> tuple[str, ...]:
    plan = run.plan(epoch)
    if not plan.traits.in_tasks:
        return ("reduced where it is read",) * len(keys)
    return tuple(_goes(plan, key) for key in keys)


def _goes(plan: RoutingPlan, key: str) -> str:
    if key not in plan.head:
        return "by Spark's hash" if plan.takes_all else f"by the ring to {plan.tasks[plan.tail_task(key)]}"
    weights: dict[int, int] = {}
    for task, weight in plan.head[key]:
        weights[task] = weights.get(task, 0) + weight
    largest = sorted(weights.items(), key=lambda item: -item[1])
    if len(largest) == 1:
        return f"pinned to {plan.tasks[largest[0][0]]}"
    named = ", ".join(f"{weight / WHOLE_WEIGHT:.1%} to {plan.tasks[task]}" for task, weight in largest[:4])
    more = f" and {len(largest) - 4:,} more" if len(largest) > 4 else ""
    return f"split over {len(largest):,} tasks: {named}{more}"
