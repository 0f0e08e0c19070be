"""One decision: its candidates, the one that was chosen, and how it changed the ring."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from skewless.documents.decision import Candidate, Certificate, EngineChoice
from skewless.routing.plan import WHOLE_WEIGHT, RoutingPlan, Weights
from skewless.routing.ring import Ring
from skewless.run.directory import RunDirectory
from skewless_airflow.web.run_folders import kept_by, stamp

#: How many candidates and reducers a page names.
MOST_CANDIDATES, MOST_REDUCERS = 40, 40
#: Of a ring with more tokens the fractions are estimated from the number of tokens: to hash them all takes too long.
_MOST_TOKENS = 100_000


@dataclass(frozen=True)
class RingPart:
    """The part of the ring that a reducer owns, between 0 and 1; None stands for all that are not named."""

    reducer: int | None
    share: float
    tokens: int


@dataclass(frozen=True)
class RingView:
    """Who owns how much of the ring, by reducer."""

    parts: tuple[RingPart, ...]
    reducers: int
    tokens: int


@dataclass(frozen=True)
class PlanView:
    """A routing plan in numbers.

    Attributes:
        waves: the waves that the stage admits, ``first <= wave < end``.
    """

    epoch: int
    policy: str
    engine: str
    waves: tuple[int, int]
    tasks: int
    budget: int | None
    pinned: int
    split: int
    factors: int
    ring: RingView
    sentence: str


@dataclass(frozen=True)
class DecisionView:
    """A decision about a stage.

    Attributes:
        after: the plan that follows; None where no further stage is needed.
        before: the ring of the stage before, where there was one.
    """

    stage: int
    policy: str
    sentence: str
    queued: int
    engine: EngineChoice | None
    certificate: Certificate | None
    candidates: tuple[Candidate, ...]
    more_candidates: int
    after: PlanView | None
    before: RingView | None
    ring_changed: bool


def read_decisions(run: RunDirectory, last_stage: int) -> list[DecisionView]:
    """All decisions of a run, by stage."""
    found: list[DecisionView] = []
    for stage in decided_stages(run, last_stage):
        if (decision := _decided(run, stage)) is not None:
            # The plan of the previous stage is in the previous decision; large ones are not read twice.
            near = found[-1].after if found and found[-1].stage == stage - 1 else None
            found.append(_compared(decision, near or _plan_before(run, stage)))
    return found


def decided_stages(run: RunDirectory, last_stage: int) -> list[int]:
    """The stages that have a decision; the last one may say that no further stage is needed."""
    return [stage for stage in range(last_stage + 2) if run.exists(f"decisions/{stage:04d}.json")]


def read_decision(run: RunDirectory, stage: int) -> DecisionView | None:
    """The decision about a stage, if there is one."""
    decision = _decided(run, stage)
    return _compared(decision, _plan_before(run, stage)) if decision else None


def _plan_before(run: RunDirectory, stage: int) -> PlanView | None:
    return read_plan(run, stage - 1) if stage else None


def _compared(decision: DecisionView, before: PlanView | None) -> DecisionView:
    """The decision with the ring before it."""
    changed = bool(before and decision.after and before.ring != decision.after.ring)
    return replace(decision, before=before.ring if before else None, ring_changed=changed)


@kept_by("plans/{:04d}.json")
def read_plan(run: RunDirectory, epoch: int) -> PlanView:
    """A plan, if it was written."""
    return _view(run.plan(epoch))


def where_keys_go(run: RunDirectory, keys: tuple[str, ...]) -> tuple[int, tuple[str, ...]]:
    """The epoch of the latest plan, and in words to which tasks it sends each key."""
    epoch = 0
    while stamp(run, f"plans/{epoch + 1:04d}.json"):
        epoch += 1
    return epoch, _where(run, epoch, keys) or ("",) * len(keys)


@kept_by("decisions/{:04d}.json")
def _decided(run: RunDirectory, stage: int) -> DecisionView:
    decision = run.decision(stage)
    return DecisionView(
        stage=decision.stage,
        policy=decision.policy,
        sentence=decision.sentence,
        queued=decision.queued_rows,
        engine=decision.engine,
        certificate=decision.certificate,
        # By their cost, after the one that was chosen.
        candidates=tuple(
            sorted(decision.candidates, key=lambda one: (not one.chosen, one.cost_rows))[:MOST_CANDIDATES]
        ),
        more_candidates=max(0, len(decision.candidates) - MOST_CANDIDATES),
        after=_view(decision.next_plan) if decision.next_plan else None,
        before=None,
        ring_changed=False,
    )


def _view(plan: RoutingPlan) -> PlanView:
    split = sum(len(shares) > 1 and len({task for task, _ in shares}) > 1 for shares in plan.head.values())
    return PlanView(
        epoch=plan.epoch,
        policy=plan.policy,
        engine=plan.engine,
        waves=plan.waves,
        tasks=plan.task_count,
        budget=plan.budget_rows,
        pinned=len(plan.head) - split,
        split=split,
        factors=sum(factor > 1 for factor in plan.factors.values()),
        ring=_ring(plan.ring),
        sentence=plan.sentence,
    )


def _ring(ring: Ring) -> RingView:
    counts = np.array([ring.tokens[reducer] for reducer in ring.reducers], dtype=np.float64)
    tokens = int(counts.sum())
    if tokens <= _MOST_TOKENS:
        highest = max(ring.reducers) + 1
        shares = (np.bincount(ring.slot_owners, minlength=highest) / len(ring.slot_owners))[list(ring.reducers)]
    else:
        shares = counts / tokens
    named = sorted(range(len(counts)), key=lambda at: -shares[at])[:MOST_REDUCERS] if len(counts) else []
    parts = [RingPart(ring.reducers[at], float(shares[at]), int(counts[at])) for at in sorted(named)]
    if len(named) < len(counts):
        rest = max(0.0, 1.0 - sum(part.share for part in parts))
        parts.append(RingPart(None, rest, tokens - sum(part.tokens for part in parts)))
    return RingView(tuple(parts), len(counts), tokens)


@kept_by("plans/{:04d}.json", most=256)
def _where(run: RunDirectory, epoch: int, keys: tuple[str, ...]) -> tuple[str, ...]:
    plan = run.plan(epoch)
    if not plan.traits.in_tasks:
        return ("reduced where it is read",) * len(keys)
    found = []
    for key in keys:
        if key in plan.head:
            found.append(_shares(plan, plan.head[key]))
        elif plan.takes_all:
            found.append("by Spark's hash")
        else:
            found.append(f"by the ring to {plan.tasks[plan.tail_task(key)]}")
    return tuple(found)


def _shares(plan: RoutingPlan, shares: Weights) -> str:
    weights: dict[int, int] = {}
    for task, weight in shares:
        weights[task] = weights.get(task, 0) + weight
    largest = sorted(weights.items(), key=lambda item: -item[1])
    if len(largest) == 1:
        return f"pinned to {plan.tasks[largest[0][0]]}"
    named = ", ".join(f"{weight / WHOLE_WEIGHT:.1%} to {plan.tasks[task]}" for task, weight in largest[:4])
    more = f" and {len(largest) - 4:,} more" if len(largest) > 4 else ""
    return f"split over {len(largest):,} tasks: {named}{more}"
