"""What a run has saved beside plain hashing, and where the items of a replay go under a plan."""

from collections.abc import Callable, Sequence

import numpy as np

from skewless.bounds import NEAR, NOT_MEASURED, makespan
from skewless.documents.job import Job
from skewless.documents.stage_report import StageReport
from skewless.documents.step_documents import AS_IT_RAN, PLAIN, Replayed, Savings
from skewless.errors import PlanError, SpecError
from skewless.planner.placement.placement import Indices, Placement, Rows, sums
from skewless.routing.plan import WHOLE_WEIGHT, RoutingPlan

#: A time is told where it is known to this part of it.
MOST_ERROR = 0.1
#: What is said where nothing is compared.
COMBINED = (
    "No row was sent to a task: every input split was aggregated where it was read (engine combine), as plain Spark "
    "does."
)
ITSELF = (
    f"Policy {PLAIN} is plain hashing: it routed the rows of this run. `skewless replay` shows what other policies "
    "would have made of them."
)


class Layout:
    """The pieces of all items under a plan: first those of keys, then of slots, then of rows without a key.

    Attributes:
        keys: pieces of the named keys.
        starts: for each slot its first piece among those of slots; its others follow, by bucket.
        item: of each piece, numbered as in ``WaveCounts``, shape ``(pieces,)``.
        share: what part of the item's new rows it gets.
    """

    def __init__(self, plan: RoutingPlan, keys: Sequence[str], slots: Indices, buckets: Indices) -> None:
        self.plan = plan
        on_ring = plan.slot_tasks[slots].astype(np.int64) + buckets % plan.slot_factors[slots]
        self.keys = Placement.under(plan.head, keys, on_ring)
        self.factors = plan.slot_factors.astype(np.int64)
        self.starts = np.cumsum(self.factors) - self.factors
        self.slot = np.repeat(np.arange(len(self.factors)), self.factors)
        self.bucket = np.arange(len(self.slot)) - self.starts[self.slot]
        tail = plan.slot_tasks[self.slot].astype(np.int64) + self.bucket
        count = len(plan.tasks)
        without = np.full(count, len(keys) + len(self.factors), dtype=np.int64)
        self.item = np.concatenate([self.keys.key, len(keys) + self.slot, without])
        self.task = np.concatenate([self.keys.task, tail, np.arange(count)])
        self.share = np.concatenate(
            [self.keys.weight / WHOLE_WEIGHT, 1.0 / self.factors[self.slot], np.full(count, 1.0 / count)]
        )

    def parts(self) -> tuple[slice, slice, slice]:
        """Which pieces are of keys, of slots, and of rows without a key."""
        keys, slots = len(self.keys.key), len(self.keys.key) + len(self.slot)
        return slice(0, keys), slice(keys, slots), slice(slots, len(self.item))


class Backlog:
    """Rows left over, by the pieces of the plan under which they were queued; a piece's rows are alike."""

    def __init__(self, layout: Layout, rows: Rows | None) -> None:
        self.layout = layout
        self.rows = np.zeros(len(layout.item)) if rows is None else rows

    def under(self, layout: Layout) -> tuple[Rows, float]:
        """Rows of each piece under the next plan, and how many changed their task, by its name."""
        if not self.rows.any():
            return np.zeros(len(layout.item)), 0.0
        number = {task: index for index, task in enumerate(layout.plan.tasks)}
        # A task that is no more gets a number that no task has.
        now = np.array([number.get(task, len(number)) for task in self.layout.plan.tasks], dtype=np.int64)
        homes = now[self.layout.task]
        parts = zip(self.layout.parts(), (self._keys, self._slots, self._without), strict=True)
        moved = [move(layout, self.rows[part], homes[part]) for part, move in parts]
        return np.concatenate([rows for rows, _ in moved]), sum(forwarded for _, forwarded in moved)

    def _keys(self, layout: Layout, rows: Rows, homes: Indices) -> tuple[Rows, float]:
        """With the same salt a row draws what it drew; with a new one, whatever it drew before."""
        old, new = self.layout.keys, layout.keys
        if layout.plan.share_salt == self.layout.plan.share_salt:
            here, there, part = old.overlap(new)
            stretches = rows[here] * part
            moves = homes[here] != new.task[there]
            return sums(there, stretches, len(new.key)), float(stretches[moves].sum())
        come = sums(old.key, rows, old.keys)[new.key] * new.weight / WHOLE_WEIGHT
        stays = rows @ _weights_at(new, old.key, homes, len(layout.plan.tasks))
        return come, float(rows.sum() - stays)

    def _slots(self, layout: Layout, rows: Rows, homes: Indices) -> tuple[Rows, float]:
        """Bucket b of f holds the keys of the buckets b, b + f, ... of a larger factor (SEP-32)."""
        old, after = self.layout, layout.factors[self.layout.slot]
        before = old.factors[old.slot]
        pieces = np.maximum(1, after // before)
        source = np.repeat(np.arange(len(rows)), pieces)
        step = np.arange(len(source)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
        target = layout.starts[old.slot[source]] + (old.bucket[source] + step * before[source]) % after[source]
        stretches = rows[source] / pieces[source]
        moves = homes[source] != layout.task[layout.parts()[1]][target]
        return sums(target, stretches, len(layout.slot)), float(stretches[moves].sum())

    def _without(self, layout: Layout, rows: Rows, homes: Indices) -> tuple[Rows, float]:
        count = len(layout.plan.tasks)
        if layout.plan.share_salt == self.layout.plan.share_salt and len(rows) == count:
            return rows, float(rows[homes != np.arange(count)].sum())
        total = float(rows.sum())
        return np.full(count, total / count), total - float(rows[homes < count].sum()) / count


def _weights_at(placement: Placement, keys: Indices, tasks: Indices, count: int) -> Rows:
    pairs, weights = placement.pairs(count + 1)
    wanted = keys * (count + 1) + tasks
    at = np.minimum(np.searchsorted(pairs, wanted), max(0, len(pairs) - 1))
    part: Rows = np.where(pairs[at] == wanted, weights[at] / WHOLE_WEIGHT, 0.0) if len(pairs) else np.zeros(len(wanted))
    return part


def savings_of(
    job: Job, plans: Sequence[RoutingPlan], reports: Sequence[StageReport], replayed: Callable[[str], Replayed]
) -> Savings:
    """What was saved by a run whose stages have committed.

    Args:
        plans: of its stages, in order, as are the reports.
        replayed: the run under plain hashing, and as it ran. If what rows cost does not explain the time of the latter,
            as where a slot is slow, it tells no time of the former.
    """
    policy = job.spec.routing.policy.name
    routed = any(plan.traits.in_tasks for plan in plans)
    if policy == PLAIN or not routed:
        return Savings(policy=policy, sentence=ITSELF if routed else COMBINED)
    try:
        own, other = replayed(AS_IT_RAN), replayed(PLAIN)
    except (PlanError, SpecError) as err:
        return Savings.unknown(policy, str(err).rstrip("."))
    if own.makespan_over_bound is None or other.makespan_over_bound is None:
        return Savings.unknown(policy, NOT_MEASURED)
    seconds = longest_seconds(job, reports)
    explained = seconds and own.seconds and abs(own.seconds / seconds - 1.0) <= MOST_ERROR
    savings = Savings(
        sentence="",
        policy=policy,
        over_bound=round(own.makespan_over_bound, 4),
        against_over_bound=round(other.makespan_over_bound, 4),
        seconds=None if seconds is None else round(seconds, 3),
        against_seconds=other.seconds if explained else None,
    )
    ratio = other.makespan_over_bound / own.makespan_over_bound
    return savings.model_copy(update={"sentence": _sentence(savings, ratio, other.error)})


def longest_seconds(job: Job, reports: Sequence[StageReport]) -> float | None:
    """What the longest tasks of the stages took together, in seconds; None where a task has not measured its time."""
    total = 0.0
    for report in reports:
        if (busy := report.busy_seconds) is not None:
            total += makespan(busy, job.slots_at(report))
        elif report.processed_rows:
            return None
    return total


def _sentence(savings: Savings, ratio: float, error: float) -> str:
    off = f" \N{PLUS-MINUS SIGN} {error:.0%}" if error else ""
    figures = f"({savings.against_over_bound:.2f} of the best possible{off}, this run {savings.over_bound:.2f})"
    seconds = ""
    if savings.seconds and savings.against_seconds is not None:
        ratio = savings.against_seconds / savings.seconds
        seconds = f", {savings.against_seconds:,.1f} s in place of {savings.seconds:,.1f} s"
    if abs(ratio - 1.0) <= NEAR:
        what = "Nothing was to be saved" if (savings.over_bound or 0.0) - 1.0 <= NEAR else "Routing has saved nothing"
        return f"{what}: plain hashing would have come as near to the best possible {figures}."
    times = f"{ratio:,.0f}" if ratio >= 10 else f"{ratio:.1f}" if ratio >= 1.1 else f"{ratio:.2f}"
    longer = f"hashing would have made the longest task {times} times as long{seconds} {figures}."
    return f"Plain {longer}" if ratio > 1.0 else f"Routing did not pay: plain {longer}"
