"""Propose, schedule, price, choose: which waves and how many rows a stage takes under each plan, and what that costs.

A stage has a price. Without it rows go where an older and less accurate forecast sends them, and the error of the
forecast (``skewless.planner.forecast.observed_waves``) leaves tasks idle or rows over.

Never worse than standing still: that is always a candidate, and another plan is only taken when its predicted cost is
lower.
"""

import bisect
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from statistics import NormalDist, fmean
from typing import NamedTuple

import numpy as np

from skewless.bounds import makespan
from skewless.documents.job import Job
from skewless.documents.stage_report import StageReport
from skewless.errors import PlanError
from skewless.planner.forecast.forecast import Forecast
from skewless.planner.forecast.observed_waves import TASK_COST_ROWS, dispersion
from skewless.planner.placement.placement import Placement, Proposal, Rows
from skewless.planner.policies import POLICIES
from skewless.routing.plan import RoutingPlan
from skewless.routing.ring import Ring

#: Budget of the policies that do not choose their own, as a multiple of the fair share.
USUAL_BUDGET = 1.02
#: What a row left over costs, in rows reduced: it is written, read and shuffled once more, and
#: if the next plan moves it, forwarded.
BACKLOG_COST_ROWS = 0.4
#: The same where waves come in order. Such rows are reduced in Python, but for native aggregates whose states go on, at
#: 9.7 us of CPU each (decision 0028); beside that the way through files and the exchange once more is short
#: (``cost.ROW_SECONDS``: 0.6 us).
BACKLOG_IN_ORDER_ROWS = 0.1
#: Budgets that are compared, as multiples of the mean predicted load.
BUDGETS = tuple(np.arange(0.70, 1.31, 0.01).tolist())
#: The same where waves come in order: most tasks may get far fewer rows than predicted.
BUDGETS_IN_ORDER = tuple(np.arange(0.30, 1.31, 0.01).tolist())
#: The same at the last input: what is left over then is left over only once more.
BUDGETS_AT_THE_END = tuple(np.arange(0.02, 1.31, 0.01).tolist())


class Budget(NamedTuple):
    """Rows that each task may reduce, or None for all of them, and why in words."""

    rows: int | None
    sentence: str


def choose_budget(
    forecast: Forecast, expected: Rows, spread: float, last_input: bool, overhead_rows: float,
    missed: Rows | None = None, splittable: bool = True,
) -> Budget:  # fmt: skip
    """The budget with the least expected cost, or none.

    A task that has more rows than the budget leaves some over, at a price; one that has fewer is idle for the rest of
    the stage. Without a budget the stage waits for the task whose forecast is worst, but needs no other stage to drain.

    ``expected`` are the rows predicted for each task, off by a ``spread`` (``dispersion``). Where waves come in order,
    ``misses`` tell how the next forecast will be missed too. A stage costs ``overhead_rows`` of the largest task.
    """
    tasks = len(expected)
    if tasks == 1 or not forecast.wave_rows or not forecast.rows_are_alike or tasks > forecast.slots:
        return Budget(None, "")
    fresh = forecast.wave_rows / max(1, forecast.queued_rows)
    error = np.sqrt(spread * np.maximum(1.0, expected * fresh * (1.0 + min(forecast.scale, 1e6))))
    drain = overhead_rows if last_input else 0.0
    fair = float(expected.mean())
    if missed is not None and len(missed):
        loads = np.maximum(fair + missed * forecast.wave_rows / tasks, 0.0)
        whole = 0.0 if splittable else float(missed.max()) * forecast.wave_rows / tasks
        # After the first stage no forecast was checked yet: keys as seen are as likely as keys missed as then.
        cases = [loads, expected] if last_input and not forecast.report.stage else [loads]
        factors = BUDGETS_AT_THE_END if last_input else BUDGETS_IN_ORDER
        costs = {factor: _cost_as_seen(fair * factor, cases, whole) for factor in factors}
        unlimited = fmean(float(case.max()) for case in cases)
    else:
        whole = 0.0 if splittable or not last_input else float(forecast.head_rows.max(initial=0.0))
        costs = _costs(fair, expected, error, whole)
        unlimited = expected_largest(expected, error) if last_input else 0.0
    best = min(costs, key=lambda factor: (costs[factor], factor))
    if last_input and unlimited <= costs[best] + drain:
        return Budget(None, "the budget is lifted, as a stage to drain what it would leave over costs more")
    return Budget(max(1, math.ceil(fair * best)), "")


#: What a task leaves over, in standard deviations of its error, by how far its forecast is above the budget: enough
#: points for a line from one to the next to be off by less than a millionth.
_ABOVE = np.linspace(-8.0, 8.0, 8193)
_NORMAL = (1.0 + np.vectorize(math.erf, otypes=[np.float64])(_ABOVE / math.sqrt(2.0))) / 2.0
_LEFT_OVER = _ABOVE * _NORMAL + np.exp(-(_ABOVE**2) / 2.0) / math.sqrt(2.0 * math.pi)


def _costs(fair: float, expected: Rows, error: Rows, whole: float) -> dict[float, float]:
    """The costs of budgets among which the best is: without a key that stays whole they fall up to it and then rise."""
    cost = cache(lambda factor: _cost(fair * factor, expected, error, whole))
    best = bisect.bisect_left(range(len(BUDGETS) - 1), True, key=lambda at: cost(BUDGETS[at]) <= cost(BUDGETS[at + 1]))
    return {factor: cost(factor) for factor in (BUDGETS if whole else BUDGETS[best : best + 1])}


def _cost(budget: float, expected: Rows, error: Rows, whole: float) -> float:
    """Rows of the stage's largest task, and those left over spread over all tasks at their price.

    Where keys are whole, what is left of the heaviest is spread over none: the stage that drains takes as long.
    """
    over = (expected - budget) / error
    # E[max(0, X - b)] of a normal X.
    mean = float((error * np.maximum(np.interp(over, _ABOVE, _LEFT_OVER), over)).mean())
    return budget + max(mean, min(whole, float(expected.max()) - budget)) + BACKLOG_COST_ROWS * mean


def expected_largest(expected: Rows, error: Rows) -> float:
    """The mean of the largest of independent normal loads: what its distribution leaves below the highest it can be."""
    low, high = float(expected.max() - 8.0 * error.max()), float((expected + 8.0 * error).max())
    near = expected + 8.0 * error > low
    expected, error, below = expected[near], error[near], np.zeros(64)
    levels = low + (high - low) * (np.arange(64) + 0.5) / 64
    for number in reversed(range(64)):  # none is below a level under one that none is below
        below[number] = np.interp((levels[number] - expected) / error, _ABOVE, _NORMAL).prod()
        if not below[number]:
            break
    return high - (high - low) * float(below.mean())


def _cost_as_seen(budget: float, cases: Sequence[Rows], whole: float) -> float:
    """The mean over some cases of loads, where waves come in order; no later stage is shorter than a key."""
    left = [np.maximum(loads - budget, 0.0) for loads in cases]
    largest = fmean(max(float(one.mean()), min(whole, float(one.max()))) for one in left)
    return budget + largest + BACKLOG_IN_ORDER_ROWS * fmean(float(one.mean()) for one in left)


#: With the rows left over at that price, a budget is best where a task is above it with the
#: probability 1 / (1 + price), which leaves so many standard deviations of a task's error idle
#: or over: (1 + price) times the normal density at that point.
WASTE_PER_ERROR = (1.0 + BACKLOG_COST_ROWS) * NormalDist().pdf(NormalDist().inv_cdf(1.0 / (1.0 + BACKLOG_COST_ROWS)))


class Admission(NamedTuple):
    """The waves that the next stage admits, ``first <= wave < end``, and why in words."""

    waves: tuple[int, int]
    sentence: str


def next_waves(
    job: Job, plan: RoutingPlan, report: StageReport, overhead_rows: float, spread: float | None = None
) -> Admission:
    """Join as many of the next waves as makes the rest of the run shortest.

    The rest of the run is cut into stages by dynamic programming over the waves that are left:
    each stage costs its overhead and what the error of its forecast wastes; the more has been
    seen before it, the smaller that is. Last, a stage that drains. By default the spread is what the report says.
    """
    first, last = plan.waves[1], len(job.waves)
    seen = report.histogram.seen_rows
    if last - first <= 1 or not seen or not overhead_rows:
        return Admission((first, min(first + 1, last)), "")
    tasks, spread = plan.task_count, spread or dispersion(plan, report, job.in_order)
    reached = seen + np.cumsum([0, *(job.predicted_rows((wave, wave + 1), seen, first) for wave in range(first, last))])

    def waste(start: int, end: int) -> float:
        return wasted_rows(float(reached[end] - reached[start]), float(reached[start]), tasks, spread)

    left = last - first
    price = [0.0] * (left + 1)
    stop = [left] * left
    for start in reversed(range(left)):
        options = {end: waste(start, end) + price[end] for end in range(start + 1, left + 1)}
        # An overhead that is more than all rows there are would drown the difference between options.
        stage = min(overhead_rows, float(job.rows))
        stop[start] = min(options, key=lambda end: (options[end] + stage * _stages(stop, end, left), end))
        price[start] = options[stop[start]]
    waves = (first, first + stop[0])
    joined = stop[0] > 1
    words = f"waves {first} to {waves[1] - 1} are admitted at once, as a stage costs more than they would gain apart"
    return Admission(waves, words if joined else "")


def wasted_rows(rows: float, known: float, tasks: int, spread: float) -> float:
    """What the error of a forecast from ``known`` rows costs a stage, in rows of the largest task."""
    return WASTE_PER_ERROR * math.sqrt(spread * rows / tasks * (1.0 + rows / known))


def _stages(stop: list[int], start: int, left: int) -> int:
    count = 1
    while start < left:
        start, count = stop[start], count + 1
    return count


#: What forwarding a row costs, in rows reduced: it is written, read and shuffled once more.
FORWARD_COST_ROWS = 0.25
#: What one more partial state costs, in rows reduced: it is written and merged.
STATE_COST_ROWS = 1.0


@dataclass(frozen=True, eq=False)
class PricedPlan:
    """A proposed plan with its predicted cost."""

    forecast: Forecast
    proposal: Proposal
    """What is proposed; for standing still and for a refusal, nothing."""
    routing: RoutingPlan
    """Ring, factors and salt of the plan, its head left out."""
    placement: Placement
    """Of the head keys of the forecast."""
    loads: Rows
    """Predicted load of each task, shape ``(tasks,)``."""
    forwarded_rows: float
    """Predicted backlog rows that change their task."""
    new_states: int
    """Pairs of head key and task that there were not before."""
    split_error_rows: float = 0.0
    """By how much a task's load may exceed its prediction because the rows of split keys are distributed at random."""
    later_rows: float = 0.0
    """The makespans of the stages after the next one, in rows, if the plan stays; 0 for a policy that places keys anew
    in each stage, as is ``error_rows``."""
    error_rows: float = 0.0
    """By how much the predicted gain may be too high, in rows, over all; 0 if the plan moves nothing."""

    @cached_property
    def makespan_rows(self) -> float:
        """When the last task is done, in rows of average cost."""
        return makespan(self.loads, self.forecast.slots)

    @cached_property
    def cost_rows(self) -> float:
        """What the planner compares, in rows of one slot.

        The makespan of the next stage; the makespans of later stages, if the plan lasts; the errors of the
        prediction; and the price of forwarding, states and tasks, divided by the tasks that run side by side.
        """
        # A key that is whole has one state wherever it goes; a split one has a state of each piece in each stage.
        states = self.placement.states - self.placement.keys + self.new_states
        state_rows = STATE_COST_ROWS + self.forecast.setup_rows
        extra = FORWARD_COST_ROWS * self.forwarded_rows + state_rows * states + TASK_COST_ROWS * len(self.loads)
        return (
            self.makespan_rows + self.later_rows + self.split_error_rows + self.error_rows + extra / self.forecast.slots
        )

    def head(self) -> dict[str, tuple[tuple[int, int], ...]]:
        """The head of the plan; empty where every key goes where ring and buckets say."""
        on_ring = len(self.placement.key) == self.placement.keys and np.array_equal(
            self.placement.task, self.forecast.on_ring(self.routing)
        )
        if on_ring and self.proposal.placement is None:
            return {}
        return self.placement.as_head(self.forecast.keys, self.forecast.by_text)


def propose(job: Job, forecast: Forecast) -> Sequence[PricedPlan]:
    """Standing still, first, and whatever the policy proposes, each with its predicted loads."""
    still = PricedPlan(
        forecast=forecast,
        proposal=Proposal("stand still", "change nothing"),
        routing=forecast.plan_with(),
        placement=forecast.placement_now,
        loads=forecast.loads_unchanged,
        forwarded_rows=0.0,
        new_states=0,
    )
    policy = POLICIES[forecast.plan.policy]
    priced = [still, *(_price(job, forecast, one, still) for one in policy.propose(job, forecast))]
    if policy.places:
        return priced
    rests = [(one, rest_of_run(job, forecast, one.routing, one.placement)) for one in priced]
    return [replace(one, later_rows=later, error_rows=error) for one, (later, error) in rests]


def _price(job: Job, forecast: Forecast, proposal: Proposal, still: PricedPlan) -> PricedPlan:
    proposal = _refused_if_empty(proposal, forecast.plan.ring)
    if proposal.refusal:
        return PricedPlan(forecast, proposal, still.routing, still.placement, still.loads, 0.0, 0)
    routing = forecast.plan_with(proposal.ring, proposal.factors)
    placement = proposal.placement or Placement.pinned(forecast.on_ring(routing))
    refuse_unsafe(job, forecast, placement)
    same_tasks = routing.same_tasks(forecast.plan)
    if not same_tasks or (proposal.redraw and (len(placement.split) or len(still.placement.split))):
        routing = routing.model_copy(update={"share_salt": routing.epoch})
    new_states = placement.pairs_beyond(still.placement) if same_tasks else placement.states
    return PricedPlan(
        forecast=forecast,
        proposal=proposal,
        routing=routing,
        placement=placement,
        loads=forecast.loads(routing, placement),
        forwarded_rows=forecast.forwarded_rows(routing, placement),
        new_states=new_states,
        split_error_rows=forecast.split_error(routing, placement),
    )


def _refused_if_empty(proposal: Proposal, now: Ring) -> Proposal:
    """Refuse a ring on which a reducer would come to own nothing: it would be a task without keys in each stage."""
    empty = sorted(proposal.ring.empty_reducers - now.empty_reducers) if proposal.ring else []
    if not empty:
        return proposal
    who = f"reducer {empty[0]}" if len(empty) == 1 else f"{len(empty):,} reducers"
    return proposal._replace(refusal=f"{who} would own none of the ring's {1 << now.ring_bits:,} slots")


def choose(priced: Sequence[PricedPlan], *, strict: bool = False) -> PricedPlan:
    """The cheapest that does not last longer than standing still; the first of equals.

    Standing still comes first. Raising the makespan never pays, however much it saves elsewhere. A ``strict`` policy
    takes the last proposal that can be carried out, whatever it costs.
    """
    still = priced[0]
    if strict:
        return [one for one in priced if not one.proposal.refusal][-1]
    able = [one for one in priced if not one.proposal.refusal and one.makespan_rows <= still.makespan_rows]
    return able[int(np.argmin([one.cost_rows for one in able]))]


def refuse_unsafe(job: Job, forecast: Forecast, placement: Placement) -> None:
    """Refuse, by a ``PlanError``, a placement that splits a key whose aggregates may not be split."""
    if job.splittable or not len(placement.split):
        return
    key = forecast.keys[int(placement.split[0])]
    raise PlanError(
        f"plan {forecast.report.stage + 1}", "every key whole, as its aggregates demand", f"key {key[:80]!r} split"
    )


#: Standard errors that a gain must exceed. Of 4,000 decisions on 400 random workloads none was wrong by more; with 0.5
#: one run took a quarter longer than without the move.
SURE = 1.5


def rest_of_run(job: Job, forecast: Forecast, routing: RoutingPlan, placement: Placement) -> tuple[float, float]:
    """What is left of the run under a plan that is kept to its end: ``later_rows`` and ``error_rows``.

    A policy that moves arcs of the ring or splits reducers, and places no keys, cannot undo the change in the next
    stage. So the planner compares such a plan with standing still over all stages that are left, not over the next one
    alone, and its predicted gain must exceed the likely error of the prediction.

    The rows that change their task are predicted from a sample: the largest change has an error of
    ``sqrt(f n (1 + N/S))`` rows as in ``skewless.planner.priced_plan``, over all N rows to come. Waves in order are no
    sample: the rows to come may be of other keys, so the error is the whole change.
    """
    if not forecast.wave_rows:
        return 0.0, 0.0
    stages = 1.0 + forecast.later_rows / forecast.wave_rows
    still = forecast.wave_loads(forecast.plan, forecast.placement_now) * stages
    loads = forecast.wave_loads(routing, placement) * stages
    before, after = (
        dict(zip(plan.tasks, rows.tolist(), strict=True)) for plan, rows in ((forecast.plan, still), (routing, loads))
    )
    moved = max(abs(before.get(task, 0.0) - after.get(task, 0.0)) for task in {**before, **after})
    spread = dispersion(forecast.plan, forecast.report)
    error = moved if job.in_order else math.sqrt(spread * moved * (1.0 + forecast.scale * stages))
    return makespan(loads, forecast.slots) * (1.0 - 1.0 / stages), SURE * error
