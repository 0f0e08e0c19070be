"""What another policy would have made of a run: its documents played again, on counts and not on rows.

A run on counts. The items are the keys that the last report names, every slot of the ring with all
other keys in it, and the rows without a key; ``skewless.planner.forecast.observed_waves`` says how their rows per wave
are found. Rows of an item flow to its tasks in proportion to its shares, and what a task leaves over
is the same part of every item in its queue.

Exact are the rows of a stage and of the run, the rows of each item over the run, hence the load of each task under a
policy that leaves no backlog and splits nothing, and every decision, given its report: the planner decides as in a run.
Estimated are the rows of an item in a wave (see there), what a draw gives each share (its expectation), which keys a
backlog is made of (in a run: the last rows of each task by their origin), how a slot's keys spread over key buckets
(evenly), a task's states (a slot's keys count as one), and a stage's time (the overhead of the recorded stages, and as
much per row of the longest task as they took). A row of a key that was timed costs what that key's did, any other the
mean of all others, whatever the task. Policy ``static`` takes all waves in one stage, as plain Spark hashes them.

How far that may put the makespan off was measured beside runs row by row: see ``ORDER_ERROR``.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from skewless.bounds import makespan, run_certificate
from skewless.columns import column
from skewless.documents.job import Job
from skewless.documents.stage_report import Histogram, StageReport, TaskLoad
from skewless.documents.step_documents import AS_IT_RAN, Replayed
from skewless.planner.first_plan import first_plan
from skewless.planner.forecast.expected_rows import RowCosts
from skewless.planner.forecast.observed_waves import StageCost, WaveCounts, stage_cost
from skewless.planner.placement.placement import Indices, Rows, sums
from skewless.planner.planner import plan_next_stage
from skewless.planner.policies import POLICIES
from skewless.routing.hashing import BUCKET_SEED, hashes_of
from skewless.routing.plan import RoutingPlan
from skewless.routing.ring import VirtualTask
from skewless.savings import MOST_ERROR, Backlog, Layout, longest_seconds

#: By which part of it a replayed makespan may be too low or too high where keys come in an order: 18 % was seen. No
#: document says in which order the rows of a task came, so it is said of each replay that has a backlog.
ORDER_ERROR = 0.2
#: The same where, besides, a stage admitted several waves: 53 % was seen, of a sorted input in few files.
JOINED_ERROR = 0.55

#: A pair of item and task counts as a partial state from so many rows on: fewer round to none.
_ONE_ROW = 0.5

#: What comes after a stage: the next plan and the sentence about it; None where no stage follows.
Follow = Callable[[RoutingPlan, Sequence[StageReport]], tuple[RoutingPlan | None, str]]


def replay(job: Job, reports: Sequence[StageReport], policy: str, plan: RoutingPlan | None = None) -> Replayed:
    """What the recorded run, all of whose reports are given, would have come to under a policy.

    A run that was warm-started has its first plan; the plain ring is the default, and of engine ``combine``. A run that
    is not finished, or a policy without a safe plan for the job, is a ``PlanError``.
    """
    played = counted_run(job, reports, policy, plan)
    error, timed = _error(reports, played), reports[-1].histogram.tail_seconds is not None
    of_rows = timed and len(set(played.slots)) == 1 and not any(one.setup_seconds for one in job.algebra.values())
    seconds = longest_seconds(played.job, played.reports) if of_rows and error <= MOST_ERROR else None
    return _judged(policy, played.job, played.reports, played.states, played.sentences, seconds, error)


def as_it_ran(
    job: Job, plans: Sequence[RoutingPlan], reports: Sequence[StageReport], decisions: Sequence[str]
) -> Replayed:
    """The recorded run in the same figures: from its reports, but for ``states`` and ``seconds``.

    These are of a run on counts along the recorded plans, as no replay can count the states of every light key.
    """
    recorded = iter(plans)
    played = CountedRun.of(job, reports, WaveCounts.of_reports(job, reports), lambda *_: (next(recorded, None), ""))
    played.play(next(recorded))
    routed = not any(plan.takes_all for plan in plans)
    states, seconds = played.states if routed else None, longest_seconds(job, played.reports)
    return _judged(AS_IT_RAN, job, reports, states, decisions, seconds)


def counted_run(job: Job, reports: Sequence[StageReport], policy: str, plan: RoutingPlan | None = None) -> "CountedRun":
    """The run behind ``replay``, with its plans and reports, on counts by the slots of its own ring."""
    changed = _under(job, policy)
    if plan is None or plan.takes_all:
        plan = first_plan(changed, None if POLICIES[policy].replans else (0, len(job.waves)))

    def follow(now: RoutingPlan, so_far: Sequence[StageReport]) -> tuple[RoutingPlan | None, str]:
        decision = plan_next_stage(changed, now, so_far[-1], so_far[:-1])
        return decision.next_plan, decision.sentence

    run = CountedRun.of(changed, reports, WaveCounts.of_reports(job, reports, 1 << plan.ring.ring_bits), follow)
    run.play(plan)
    return run


def _under(job: Job, policy: str) -> Job:
    """The job run with another policy's defaults, in stages; tokens that it cannot begin with are its own choice."""
    routing = job.spec.routing
    tokens = routing.tokens
    if policy in {"halving", "doubling"} and tokens is not None and tokens & (tokens - 1):
        tokens = None
    changed = routing.under(policy).model_copy(update={"tokens": tokens})
    return job.model_copy(
        update={"slots": job.slots_at(), "spec": job.spec.model_copy(update={"engine": "staged", "routing": changed})}
    )


# Figures.


def _judged(
    policy: str,
    job: Job,
    reports: Sequence[StageReport],
    states: int | None,
    decisions: Sequence[str],
    seconds: float | None,
    error: float = 0.0,
) -> Replayed:
    processed = np.array([report.processed_rows for report in reports], dtype=np.float64)
    rows, gap = max(1.0, float(processed.sum())), run_certificate(job, reports).gap
    most, imbalances = (0, np.zeros(1)) if gap is None else _by_task(reports)
    fair = -(-int(processed.sum()) // job.spec.routing.reducers)
    skew = (most - fair) / (processed.sum() - fair) if processed.sum() > fair else 0.0
    return Replayed(
        policy=policy,
        makespan_over_bound=None if gap is None else 1.0 + gap,
        error=error,
        seconds=None if seconds is None else round(seconds, 3),
        s=None if gap is None else float(skew),
        imbalance_final=None if gap is None else float(imbalances[-1]) / rows,
        imbalance_fraction=None if gap is None else float(imbalances @ processed) / rows / rows,
        rows_forwarded=sum(report.forwarded_rows for report in reports),
        states=states,
        stages=len(reports),
        decisions=tuple(decisions),
    )


def _error(recorded: Sequence[StageReport], played: "CountedRun") -> float:
    """By which part of it a replay's makespan may be off: see ``ORDER_ERROR``."""
    alone = all(report.waves[1] - report.waves[0] <= 1 for report in recorded)
    counted = len(recorded[-1].histogram.seen_tail) >= played.counts.ring_slots
    if (alone or len(played.reports) == 1) and counted and not any(report.backlog_rows for report in played.reports):
        return 0.0  # the rows of each slot and each named key in each stage are known
    return ORDER_ERROR if alone else JOINED_ERROR


def _by_task(reports: Sequence[StageReport]) -> tuple[int, Rows]:
    """The most rows of one task or input split, by its name, and the imbalance at the end of each stage, in rows."""
    loads: dict[str, int] = {}
    found = []
    for report in reports:
        names = column(report.tasks, "task") or [f"split {number}" for number in range(len(report.splits))]
        for name, rows in zip(names, report.processed.tolist(), strict=True):
            loads[name] = loads.get(name, 0) + rows
        found.append(max(loads.values()) - sum(loads.values()) / len(loads) if loads else 0.0)
    return max(loads.values(), default=0), np.array(found)


# The run.


@dataclass(eq=False)
class CountedRun:
    """One run on counts: the rows of each item in each wave, what a stage takes, and who decides about the next one."""

    job: Job
    counts: WaveCounts
    cost: StageCost
    slots: Sequence[int]
    """Of each recorded stage; a stage beyond them has those of the last."""
    row_seconds: Rows | None
    """Of each item, where the tasks' own times were measured: the planner prices a stage by them."""
    follow: Follow
    plans: list[RoutingPlan] = field(default_factory=list)
    """Of the stages played, in order, as are the reports and the sentences of the decisions after them."""
    reports: list[StageReport] = field(default_factory=list)
    sentences: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, job: Job, reports: Sequence[StageReport], counts: WaveCounts, follow: Follow) -> "CountedRun":
        """A run that is not played yet, with the slots and costs of the recorded one."""
        rows, row_seconds = sum(report.processed_rows for report in reports), None
        busy = [seconds for report in reports if report.tasks and (seconds := report.busy_seconds) is not None]
        if rows and len(busy) == len(reports):
            costs = RowCosts(reports[-1])
            of_items = np.append(costs.of_keys(counts.keys), np.full(counts.ring_slots + 1, costs.tail_cost))
            row_seconds = of_items * (sum(float(one.sum()) for one in busy) / rows)
        slots = [job.slots_at(report) for report in reports]
        return cls(job, counts, stage_cost(job, reports), slots, row_seconds, follow)

    def play(self, plan: RoutingPlan) -> None:
        """All stages from a first plan on, until none follows."""
        items = self.counts.by_item.shape[1]
        self._seen, self._pairs, self._names = np.zeros(items), list[tuple[Indices, Rows]](), dict[VirtualTask, int]()
        backlog = Backlog(Layout(plan, self.counts.keys, self.counts.slots, self._buckets), None)
        next_plan: RoutingPlan | None = plan
        while next_plan is not None:
            backlog = self._stage(next_plan, backlog)
            next_plan, sentence = self.follow(next_plan, self.reports)
            if sentence:
                self.sentences.append(sentence)

    @property
    def states(self) -> int:
        """Distinct pairs of item and task, over the run, with at least one row, rounded."""
        if not self._pairs:
            return 0
        numbers, rows = (np.concatenate(columns) for columns in zip(*self._pairs, strict=True))
        _, where = np.unique(numbers, return_inverse=True)
        return int((np.bincount(where, weights=rows) >= _ONE_ROW).sum())

    @cached_property
    def _buckets(self) -> Indices:
        return hashes_of(self.counts.keys, BUCKET_SEED)

    def _stage(self, plan: RoutingPlan, backlog: Backlog) -> Backlog:
        layout = Layout(plan, self.counts.keys, self.counts.slots, self._buckets)
        came, forwarded = backlog.under(layout)
        wave = self.counts.rows_of(plan.waves)
        self._seen += wave
        queued = came + wave[layout.item] * layout.share
        loads = sums(layout.task, queued, len(plan.tasks))
        backlog_in = self.reports[-1].backlog_rows if self.reports else 0
        admitted = round(float(wave.sum()))
        queued_rows = _whole(loads, backlog_in + admitted)
        processed = queued_rows if plan.budget_rows is None else np.minimum(queued_rows, plan.budget_rows)
        # Tasks follow the whole numbers, so that what is left of each is exactly what is reported.
        kept = np.minimum((queued_rows - processed) / np.maximum(loads, 1e-9), 1.0)
        left = Backlog(layout, queued * kept[layout.task])
        done = queued * (1.0 - kept[layout.task])
        states = self._count_states(plan, layout, done)
        costs, tasks = self.row_seconds, len(plan.tasks)
        busy = [None] * tasks if costs is None else sums(layout.task, done * costs[layout.item], tasks).tolist()
        self.plans.append(plan)
        by_task = queued_rows, processed, states
        self.reports.append(self._report(plan, by_task, busy, (admitted, backlog_in, forwarded), left))
        return left

    def _count_states(self, plan: RoutingPlan, layout: Layout, done: Rows) -> Indices:
        names = np.array([self._names.setdefault(task, len(self._names)) for task in plan.tasks], dtype=np.int64)
        some = np.flatnonzero(done > 0)
        self._pairs.append((names[layout.task[some]] * len(self._seen) + layout.item[some], done[some]))
        return np.bincount(layout.task[done >= _ONE_ROW], minlength=len(plan.tasks))

    def _report(
        self,
        plan: RoutingPlan,
        by_task: tuple[Indices, Indices, Indices],
        busy: Sequence[float | None],
        came: tuple[int, int, float],
        left: Backlog,
    ) -> StageReport:
        queued, processed, _ = by_task
        admitted, backlog_in, forwarded = came
        slots = self.slots[min(len(self.reports), len(self.slots) - 1)]
        longest = makespan(processed.astype(np.float64), slots)
        backlog_rows = int((queued - processed).sum())
        return StageReport(
            stage=plan.epoch,
            waves=plan.waves,
            admitted_rows=admitted,
            backlog_in_rows=backlog_in,
            forwarded_rows=min(backlog_in, round(forwarded)),
            processed_rows=int(processed.sum()),
            backlog_rows=backlog_rows,
            stage_seconds=self.cost.overhead_seconds + self.cost.seconds_per_row * longest,
            tasks=tuple(
                TaskLoad(task=str(task), queued_rows=q, processed_rows=p, backlog_rows=q - p, states=s, busy_seconds=b)
                for task, q, p, s, b in zip(plan.tasks, *(part.tolist() for part in by_task), busy, strict=True)
            ),
            histogram=self._histogram(sums(left.layout.item, left.rows, len(self._seen)), backlog_rows),
            slots=slots,
        )

    def _histogram(self, left: Rows, backlog_rows: int) -> Histogram:
        """As ``skewless_spark.stage.measured_stage`` makes it, but that only keys of the last report are named."""
        keys, size = len(self.counts.keys), self.counts.ring_slots
        seen_rows = round(float(self._seen.sum()))
        seen = _whole(self._seen, seen_rows)
        over = _whole(left, backlog_rows, seen)
        share = np.maximum(seen[:keys] / max(1, seen_rows), over[:keys] / max(1, int(over[:-1].sum())))
        order = np.argsort(-share, kind="stable")  # keys are in text order
        named = order[share[order] > 0][: self.job.spec.routing.head_limit]
        light = np.ones(keys, dtype=bool)
        light[named] = False
        tails = [
            part[keys:-1] + np.bincount(self.counts.slots[light], weights=part[:keys][light], minlength=size)
            for part in (seen, over)
        ]
        texts, seen_keys, over_keys = self.counts.keys, seen.tolist(), over.tolist()
        return Histogram(
            seen_rows=seen_rows,
            seen_null_rows=seen_keys[-1],
            backlog_null_rows=over_keys[-1],
            head={texts[number]: (seen_keys[number], over_keys[number]) for number in named.tolist()},
            seen_tail=tails[0].astype(int),
            backlog_tail=tails[1].astype(int),
        )


def _whole(amounts: Rows, total: int, most: Indices | None = None) -> Indices:
    """Round down, and give what is missing to the largest remainders, the first of equals, up to ``most``."""
    # What floating point makes of a whole number must not be rounded down to the one below.
    whole = np.floor(amounts + 1e-6).astype(np.int64)
    spare = total - int(whole.sum())
    if not spare:
        return whole
    rest = amounts - whole
    if spare < 0:
        takers = np.flatnonzero(whole > 0)
        whole[takers[np.argsort(rest[takers], kind="stable")[:-spare]]] -= 1
        return whole
    full = np.zeros(len(whole), dtype=bool) if most is None else whole >= most
    order = np.lexsort((-rest, full))
    each, more = divmod(spare, len(whole))
    whole[order[:more]] += 1
    return whole + each
