"""One decision: its candidates, the one that was chosen, and how it changed the ring."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from skewless.documents.decision import Candidate, Certificate, Decision, EngineChoice
from skewless.routing.plan import WHOLE_WEIGHT, RoutingPlan, Weights
from skewless.routing.ring import Ring
from skewless.run.directory import RunDirectory
from skewless_airflow.web.run_folders import stamp

#: How many candidates and reducers a page names.
MOST_CANDIDATES = 40
MOST_REDUCERS = 40
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
        pinned: head keys that go to one task.
        split: head keys that go to several tasks.
        factors: how many reducers have several key buckets.
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
        ring_changed: whether the two differ.
        more_candidates: how many candidates are not named.
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


def _decided(run: RunDirectory, stage: int) -> DecisionView | None:
    mark = stamp(run, f"decisions/{stage:04d}.json")
    return _decision(run.path(""), stage, mark) if mark else None


def _plan_before(run: RunDirectory, stage: int) -> PlanView | None:
    return read_plan(run, stage - 1) if stage else None


def _compared(decision: DecisionView, before: PlanView | None) -> DecisionView:
    """The decision with the ring before it."""
    changed = bool(before and decision.after and before.ring != decision.after.ring)
    return replace(decision, before=before.ring if before else None, ring_changed=changed)


def read_plan(run: RunDirectory, epoch: int) -> PlanView | None:
    """A plan, if it was written."""
    mark = stamp(run, f"plans/{epoch:04d}.json")
    return _plan(run.path(""), epoch, mark) if mark else None


def where_keys_go(run: RunDirectory, keys: tuple[str, ...]) -> tuple[int, tuple[str, ...]]:
    """The epoch of the latest plan, and in words to which tasks it sends each key."""
    epoch = 0
    while stamp(run, f"plans/{epoch + 1:04d}.json"):
        epoch += 1
    return epoch, _where(run.path(""), epoch, stamp(run, f"plans/{epoch:04d}.json"), keys)


@lru_cache(maxsize=1024)
def _decision(location: str, stage: int, _mark: str) -> DecisionView:
    run = RunDirectory(location)
    decision = run.decision(stage)
    after = _view(decision.next_plan) if decision.next_plan else None
    return DecisionView(
        stage=decision.stage,
        policy=decision.policy,
        sentence=decision.sentence,
        queued=decision.queued_rows,
        engine=decision.engine,
        certificate=decision.certificate,
        candidates=_named(decision),
        more_candidates=max(0, len(decision.candidates) - MOST_CANDIDATES),
        after=after,
        before=None,
        ring_changed=False,
    )


def _named(decision: Decision) -> tuple[Candidate, ...]:
    """The candidates by their cost, after the one that was chosen."""
    return tuple(sorted(decision.candidates, key=lambda one: (not one.chosen, one.cost_rows))[:MOST_CANDIDATES])


@lru_cache(maxsize=1024)
def _plan(location: str, epoch: int, _mark: str) -> PlanView:
    return _view(RunDirectory(location).plan(epoch))


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


@lru_cache(maxsize=256)
def _where(location: str, epoch: int, mark: str | None, keys: tuple[str, ...]) -> tuple[str, ...]:
    if mark is None:
        return ("",) * len(keys)
    plan = RunDirectory(location).plan(epoch)
    if not plan.traits.in_tasks:
        return ("reduced where it is read",) * len(keys)
    return tuple(_shares(plan, plan.head[key]) if key in plan.head else _tail(plan, key) for key in keys)


def _tail(plan: RoutingPlan, key: str) -> str:
    if plan.takes_all:
        return "by Spark's hash"
    return f"by the ring to {plan.tasks[plan.tail_task(key)]}"


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
