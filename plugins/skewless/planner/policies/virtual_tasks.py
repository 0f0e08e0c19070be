"""``virtual_tasks``: a reducer with too much work is split by key buckets, and merged again when it has little.

Samza's SEP-32 without its containers: the elasticity factor of a reducer is doubled or halved, and
bucket b of f becomes the buckets b and b + f of 2f. A bucket is a hash of the key, so a split moves
keys and never parts of one: a single heavy key stays one task's, and the planner's numbers show that.

What one task should hold is a fair share of the queued rows per slot, and ``threshold``
more. Siblings are merged when they fit into half of that, so that no split is undone at once.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from skewless.documents.job import Job
from skewless.planner.forecast.forecast import Forecast
from skewless.planner.placement.placement import Proposal, Rows
from skewless.planner.placement.ring_changes import HYSTERESIS
from skewless.routing.ring import MOST_BUCKETS, VirtualTask, tasks_of

#: Reducers, and tasks of each, that a sentence names.
_NAMED = 3
#: Rounding errors of sums make no task too large.
_TOLERANCE = 1e-9


class _Group(NamedTuple):
    tasks: tuple[VirtualTask, ...]
    rows: Rows

    @property
    def reducer(self) -> int:
        return self.tasks[0].reducer

    @property
    def factor(self) -> int:
        return self.tasks[0].factor

    def merged(self) -> "_Group":
        half = self.factor // 2
        return _Group(tasks_of(self.reducer, half), self.rows[:half] + self.rows[half:])

    def fits(self, limit: float) -> bool:
        return float(self.rows.max()) <= limit


class _Change(NamedTuple):
    verb: str
    before: Sequence[VirtualTask]
    after: Sequence[VirtualTask]

    def __str__(self) -> str:
        return f"{self.verb} {_names(self.before)} into {_names(self.after)}"


def propose(job: Job, forecast: Forecast) -> Sequence[Proposal]:
    """Split the reducers with a task that is too large, merge those that are small, or do both."""
    tasks, loads = forecast.plan.tasks, forecast.loads_unchanged
    first = [at for at, task in enumerate(tasks) if task.bucket == 0]
    groups = [_Group(tasks[start:end], loads[start:end]) for start, end in pairwise([*first, len(tasks)])]
    fair = float(loads.sum()) / forecast.slots
    limit = fair * (1.0 + job.spec.routing.policy.threshold) * (1.0 + _TOLERANCE)
    due = [group for group in groups if not group.fits(limit)]
    # Slots are free if there are more of them than tasks, or if they wait while the largest task runs.
    free = len(loads) < forecast.slots or float(loads.max()) > fair * (1.0 + _TOLERANCE)
    able = [group for group in due if free and group.factor < MOST_BUCKETS]
    stuck = [group for group in due if not free or group.factor >= MOST_BUCKETS]
    small = [group for group in groups if group.factor > 1 and group.merged().fits(HYSTERESIS * limit)]
    splits = [_Change("split", group.tasks, tasks_of(group.reducer, 2 * group.factor)) for group in able]
    merges = [_Change("merge", group.tasks, group.merged().tasks) for group in small]
    proposals = []
    if splits:
        proposals.append(_changing(forecast, "split", splits))
    if merges:
        proposals.append(_changing(forecast, "merge", merges))
    if splits and merges:
        proposals.append(_changing(forecast, "split and merge", splits + merges))
    return [*proposals, *_refusal(stuck, free)]


def _changing(forecast: Forecast, action: str, changes: Sequence[_Change]) -> Proposal:
    factors = dict(forecast.plan.factors)
    for change in changes:
        factors[change.after[0].reducer] = change.after[0].factor
    named = [str(change) for change in changes[:_NAMED]]
    if len(changes) > _NAMED:
        named.append(f"and {len(changes) - _NAMED:,} reducers more")
    factors = {reducer: factor for reducer, factor in sorted(factors.items()) if factor > 1}
    return Proposal(action, ", ".join(named), factors=factors)


def _refusal(stuck: Sequence[_Group], free: bool) -> Sequence[Proposal]:
    if not stuck:
        return ()
    named = ", ".join(str(group.reducer) for group in stuck[:_NAMED])
    more = ", ..." if len(stuck) > _NAMED else ""
    words = f"split reducer{'s' if len(stuck) > 1 else ''} {named}{more}"
    if not free:
        return (Proposal("split", words, refusal="each slot has a task, and none would be idle"),)
    have = "each has" if len(stuck) > 1 else "it has"
    return (Proposal("split", words, refusal=f"{have} {MOST_BUCKETS} key buckets, the most there may be"),)


def _names(tasks: Sequence[VirtualTask]) -> str:
    named = "+".join(str(task) for task in tasks[:_NAMED])
    return f"{named}+..." if len(tasks) > _NAMED else named
