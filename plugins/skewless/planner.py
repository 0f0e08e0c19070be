"""Propose, choose: what the next stage's plan should be. Enacting is somebody else's.

Never worse than standing still: that is always a candidate, and another plan is only taken
when its predicted cost is lower.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from skewless.bounds import Certificate, certify
from skewless.decision import Candidate, Decision
from skewless.errors import PlanError, nearest
from skewless.forecast import Forecast, Rows
from skewless.job import Job
from skewless.policies import POLICIES
from skewless.ring import Ring
from skewless.routing_plan import RoutingPlan
from skewless.stage_report import StageReport

#: What forwarding a row costs, in rows reduced: it is written, read and shuffled once more.
FORWARD_COST_ROWS = 0.25
#: What one more partial state costs, in rows reduced: it is written and merged.
STATE_COST_ROWS = 1.0
#: Forecasts are trusted once a stage's queued rows came out this even, as max/mean.
SETTLED_MAX_OVER_MEAN = 1.05


@dataclass(frozen=True, eq=False)
class Weighed:
    """A plan with its prediction, before anyone chose."""

    action: str
    sentence: str
    plan: RoutingPlan
    loads: Rows
    forwarded_rows: float

    @cached_property
    def pieces(self) -> int:
        """(Head key, task) pairs of the plan."""
        return sum(map(len, self.plan.head.values()))

    @cached_property
    def cost_rows(self) -> float:
        """Makespan in rows, with forwarding and partial states shared out over the tasks."""
        split = self.pieces - len(self.plan.head)  # a key that is whole has one state wherever it goes
        extra = FORWARD_COST_ROWS * self.forwarded_rows + STATE_COST_ROWS * split
        return float(self.loads.max()) + extra / len(self.loads)


def first_plan(job: Job) -> RoutingPlan:
    """Plan 0: the plain ring, since nothing is known yet."""
    routing = job.spec.routing
    return RoutingPlan(
        epoch=0,
        policy=routing.policy,
        ring=Ring.even(routing.reducers, routing.tokens, routing.ring_bits),
        budget_rows=_budget(job, 0, job.wave_rows(0)),
    )


def plan_next_stage(job: Job, plan: RoutingPlan, report: StageReport) -> Decision:
    """Decide about the stage after ``report``, purely from the documents.

    Args:
        job: the frozen job.
        plan: the plan of the reported stage.
        report: what happened.

    Raises:
        PlanError: plan and report are not of the same stage.
    """
    _refuse_unlike(plan, report)
    forecast = Forecast.after(job, plan, report)
    stage = report.stage + 1
    if not forecast.queued_rows:
        return _finished(stage, plan.policy)
    weighed = propose(job, forecast)
    taken = choose(weighed)
    head = forecast.head_rows
    budget, lifted = _budget(job, stage, forecast.queued_rows), ""
    if budget is not None and _settled(job, forecast, taken):
        budget, lifted = None, "; it is the last input and the last forecast came true, so the budget is lifted"
    certificate = certify(
        total=float(taken.loads.sum()),
        tasks=len(taken.loads),
        makespan=float(taken.loads.max()),
        heaviest=(forecast.keys[0], float(head[0])) if len(head) else None,
        splittable=job.splittable,
    )
    return Decision(
        stage=stage,
        policy=plan.policy,
        queued_rows=forecast.queued_rows,
        candidates=tuple(_candidate(one, weighed[0], one is taken) for one in weighed),
        certificate=certificate,
        sentence=_sentence(taken, weighed[0], certificate) + lifted,
        next_plan=taken.plan.model_copy(update={"budget_rows": budget}),
    )


def propose(job: Job, forecast: Forecast) -> Sequence[Weighed]:
    """Standing still, first, and whatever the policy proposes, each with its predicted loads."""
    still = forecast.plan.model_copy(update={"epoch": forecast.report.stage + 1})
    weighed = [Weighed("stand still", "change nothing", still, forecast.loads_unchanged(), 0.0)]
    for proposal in POLICIES[still.policy].propose(job, forecast):
        plan = RoutingPlan(
            epoch=still.epoch,
            policy=still.policy,
            ring=still.ring,
            factors=still.factors,
            head=dict(sorted(proposal.head.items())),
            share_salt=still.epoch,
        )
        refuse_unsafe(job, plan)
        loads, moved = forecast.loads(plan, proposal.head), forecast.forwarded_rows(proposal.head)
        weighed.append(Weighed(proposal.action, proposal.sentence, plan, loads, moved))
    return weighed


def choose(weighed: Sequence[Weighed]) -> Weighed:
    """The cheapest; the first of equals, and standing still comes first."""
    return weighed[int(np.argmin([one.cost_rows for one in weighed]))]


def refuse_unsafe(job: Job, plan: RoutingPlan) -> None:
    """Refuse a plan that splits a key whose aggregates may not be split.

    Raises:
        PlanError: names the key.
    """
    if job.splittable:
        return
    split = next((key for key, shares in plan.head.items() if len(shares) > 1), None)
    if split is not None:
        raise PlanError(f"plan {plan.epoch}", "every key whole, as its aggregates demand", f"key {split[:80]!r} split")


def _budget(job: Job, stage: int, queued_rows: int) -> int | None:
    """The fair share of what is queued, times the spec's slack; none once no input is left.

    A backlog only pays if a later plan can place it better.
    """
    routing = job.spec.routing
    if not POLICIES[routing.policy].replans or stage >= len(job.waves):
        return None
    return math.ceil(queued_rows / routing.reducers * routing.budget)


def _settled(job: Job, forecast: Forecast, taken: Weighed) -> bool:
    """Whether the stage takes in the last of the input and is foretold so well that it may drain.

    What a budget leaves over needs a stage of its own, and then a handful of rows is placed at
    the cost of a stage. It pays as a guard against a wrong forecast; the reported stage shows
    how right the last one was.
    """
    if forecast.report.stage + 1 < len(job.waves) - 1:
        return False
    queued = np.array([load.queued_rows for load in forecast.report.tasks])
    evenly = bool(queued.max() <= SETTLED_MAX_OVER_MEAN * queued.mean())
    return evenly and float(taken.loads.max()) <= job.spec.routing.budget * float(taken.loads.mean())


def _refuse_unlike(plan: RoutingPlan, report: StageReport) -> None:
    """Refuse documents that are not of one stage.

    Raises:
        PlanError: says what differs.
    """
    if plan.policy not in POLICIES:
        raise PlanError(
            f"plan {plan.epoch}, policy", "a known policy", repr(plan.policy), nearest(plan.policy, POLICIES)
        )
    if plan.epoch != report.stage:
        raise PlanError("planner", f"the report of stage {plan.epoch}", f"that of stage {report.stage}")
    if [str(task) for task in plan.tasks] != [load.task for load in report.tasks]:
        raise PlanError(
            f"report of stage {report.stage}", f"the {len(plan.tasks)} tasks of its plan", f"{len(report.tasks)} others"
        )
    slots = 1 << plan.ring.ring_bits
    if {len(report.histogram.seen_tail), len(report.histogram.backlog_tail)} != {slots}:
        raise PlanError(
            f"report of stage {report.stage}", f"a tail of {slots} slots, as its plan has",
            f"{len(report.histogram.seen_tail)} and {len(report.histogram.backlog_tail)}",
        )  # fmt: skip


def _candidate(one: Weighed, still: Weighed, chosen: bool) -> Candidate:
    makespan = float(one.loads.max())
    unchanged = float(still.loads.max())
    against = makespan / unchanged - 1.0 if unchanged else 0.0
    if one is still:
        words = f"{one.sentence}: the largest task gets {makespan:,.0f} rows"
    else:
        words = f"{one.sentence}: the largest task gets {makespan:,.0f} rows ({against:+.1%} against standing still)"
    return Candidate(
        action=one.action,
        makespan_rows=makespan,
        forwarded_rows=one.forwarded_rows,
        pieces=one.pieces,
        cost_rows=one.cost_rows,
        chosen=chosen,
        sentence=f"{words}; {'taken' if chosen else 'refused, another costs less'}",
    )


def _sentence(taken: Weighed, still: Weighed, certificate: Certificate) -> str:
    before, after = float(still.loads.max()), float(taken.loads.max())
    if taken is still:
        return f"stand still: no other plan costs less; {certificate.conclusion}"
    return (
        f"{taken.action}: {taken.sentence}; largest task {before:,.0f} -> {after:,.0f} rows; {certificate.conclusion}"
    )


def _finished(stage: int, policy: str) -> Decision:
    return Decision(
        stage=stage,
        policy=policy,
        queued_rows=0,
        candidates=(),
        certificate=None,
        sentence="no further stage: the input is used up and no backlog is left",
        next_plan=None,
    )
