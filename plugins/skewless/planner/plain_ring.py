"""The first plan where nothing is known of the keys: the plain ring."""

from __future__ import annotations

import math

from skewless.documents.job import Job
from skewless.errors import SpecError
from skewless.planner.cost import overhead_rows_before
from skewless.planner.policies import POLICIES
from skewless.routing.plan import PlanSource, RoutingPlan
from skewless.routing.ring import Ring, ring_bits_for
from skewless.spec.routing import Routing

#: Budget of a first stage on the plain ring if waves come in order, as a multiple of the fair share: most tasks have
#: fewer rows of unknown keys than the mean, and a first wave in order may be as large as any other.
FIRST_BUDGET_IN_ORDER = 0.5
#: The price of a stage that drains what the only stage with input leaves over, at most, as a part of its budget.
DRAIN_PART = 0.01


def first_plan(job: Job, waves: tuple[int, int] | None = None) -> RoutingPlan:
    """The first plan where nothing is known: the plain ring.

    Args:
        job: the frozen job.
        waves: those that the first stage admits; the first one by default.
    """
    # What is observed may add reducers to the ring.
    ring = first_ring(job.spec.routing.model_copy(update={"tokens": job.enacted.spec.routing.initial_tokens}))
    job = job.enacted
    waves = waves or (0, min(1, len(job.waves)))
    return RoutingPlan(
        epoch=0,
        policy=job.spec.routing.policy.name,
        waves=waves,
        ring=ring,
        budget_rows=_first_budget(job, waves),
        sentence="the plain ring: nothing is known of the keys yet",
        source=PlanSource(kind="ring"),
    )


def first_ring(routing: Routing, where: str = "spec") -> Ring:
    """The ring of the first plan: fine enough for as many reducers as ``adaptive`` may add.

    Args:
        routing: of the spec.
        where: the spec, for messages.

    Raises:
        SpecError: a reducer would own nothing on it.
    """
    most, tokens = routing.most_reducers, routing.initial_tokens
    fine = ring_bits_for(most, tokens)
    bits = routing.ring_bits or fine
    # Taking reducers away only gives the others more: what holds for the most of them holds for fewer.
    widest = Ring.even(most, tokens, bits)
    if widest.empty_reducers:
        coarse = bits < fine and not Ring.even(most, tokens, fine).empty_reducers
        fewer = "take fewer reducers" + ("" if routing.policy.name == "doubling" else " or give each more tokens")
        raise SpecError(
            f"{where}, routing", f"a slot of the ring for each of {most:,} reducers",
            f"{len(widest.empty_reducers):,} that own none of its {1 << bits:,}",
            f"leave ring_bits out or set it to {fine}" if coarse else fewer,
        )  # fmt: skip
    return widest if most == routing.reducers else Ring.even(routing.reducers, tokens, bits)


def _first_budget(job: Job, waves: tuple[int, int]) -> int | None:
    """The budget of a stage on the plain ring.

    At the last input, rows left over need one more stage, and it is not known yet how many there would be. So the
    budget is so large that the price of that stage is at most ``DRAIN_PART`` of it: the run is then at most that part
    longer than without a budget.
    """
    routing, policy = job.spec.routing, POLICIES[job.spec.routing.policy.name]
    # How many rows a map makes of one is measured in the first stage; before that the fair share is unknown.
    if job.spec.map or not policy.replans:
        return None
    rows = job.admitted_rows(waves)
    fair = rows / routing.reducers
    if routing.budget is not None:
        return math.ceil(fair * routing.budget)
    if waves[1] < len(job.waves):
        return math.ceil(fair * (FIRST_BUDGET_IN_ORDER if job.in_order and policy.places else 1.0))
    # A policy that places no keys leaves the rest where it is, and gains nothing by draining it.
    budget = max(fair, overhead_rows_before(job) / DRAIN_PART)
    return math.ceil(budget) if policy.places and budget < rows else None
