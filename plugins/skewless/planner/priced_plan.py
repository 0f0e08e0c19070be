"""Propose, price, choose: what each proposed plan is predicted to cost, and the cheapest of them.

Never worse than standing still: that is always a candidate, and another plan is only taken when its predicted cost is
lower.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from skewless.bounds import makespan
from skewless.documents.job import Job
from skewless.errors import PlanError
from skewless.planner.cost import TASK_COST_ROWS
from skewless.planner.forecast.forecast import Forecast
from skewless.planner.forecast.forecast_error import dispersion
from skewless.planner.placement.placement import Placement, Rows
from skewless.planner.policies import POLICIES
from skewless.planner.policies.proposal import Proposal
from skewless.routing.plan import RoutingPlan
from skewless.routing.ring import Ring

#: What forwarding a row costs, in rows reduced: it is written, read and shuffled once more.
FORWARD_COST_ROWS = 0.25
#: What one more partial state costs, in rows reduced: it is written and merged.
STATE_COST_ROWS = 1.0


@dataclass(frozen=True, eq=False)
class PricedPlan:
    """A proposed plan with its predicted cost.

    Attributes:
        proposal: what is proposed; for standing still and for a refusal, nothing.
        routing: ring, factors and salt of the plan, its head left out.
        placement: of the head keys of the forecast.
        loads: predicted load of each task, shape ``(tasks,)``.
        forwarded_rows: predicted backlog rows that change their task.
        new_states: pairs of head key and task that there were not before.
        split_error_rows: by how much a task's load may exceed its prediction because the rows of split keys are
            distributed at random.
        later_rows: the makespans of the stages after the next one, in rows, if the plan stays; 0 for a policy that
            places keys anew in each stage, as is ``error_rows``.
        error_rows: by how much the predicted gain may be too high, in rows, over all; 0 if the plan moves nothing.
    """

    forecast: Forecast
    proposal: Proposal
    routing: RoutingPlan
    placement: Placement
    loads: Rows
    forwarded_rows: float
    new_states: int
    split_error_rows: float = 0.0
    later_rows: float = 0.0
    error_rows: float = 0.0

    @cached_property
    def makespan_rows(self) -> float:
        """When the last task is done, in rows of average cost."""
        return makespan(self.loads, self.forecast.parallelism)

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
            self.makespan_rows
            + self.later_rows
            + self.split_error_rows
            + self.error_rows
            + extra / self.forecast.parallelism
        )

    def head(self) -> dict[str, tuple[tuple[int, int], ...]]:
        """The head of the plan; empty where every key goes where ring and buckets say."""
        on_ring = len(self.placement.key) == self.placement.keys and np.array_equal(
            self.placement.task, self.forecast.on_ring(self.routing)
        )
        return (
            {}
            if on_ring and self.proposal.placement is None
            else self.placement.as_head(self.forecast.keys, self.forecast.by_text)
        )


def propose(job: Job, forecast: Forecast) -> Sequence[PricedPlan]:
    """Standing still, first, and whatever the policy proposes, each with its predicted loads."""
    still = PricedPlan(
        forecast=forecast,
        proposal=Proposal("stand still", "change nothing"),
        routing=forecast.plan_with(),
        placement=forecast.placement_now,
        loads=forecast.loads_unchanged(),
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
    ``sqrt(f n (1 + N/S))`` rows as in ``skewless.planner.schedule``, over all N rows to come. Waves in order are no
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
    return makespan(loads, forecast.parallelism) * (1.0 - 1.0 / stages), SURE * error
