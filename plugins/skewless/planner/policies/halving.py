"""``halving``: an overloaded reducer loses half of its tokens, and the ring moves its keys on.

Token halving of the DPA load balancer (sections 4.1 and 4.2). Few keys are disturbed, as slots only move away from the
overloaded reducer; but it may run out of tokens, and a single heavy key stays as heavy wherever it goes.
"""

from __future__ import annotations

from collections.abc import Sequence

from skewless.documents.job import Job
from skewless.errors import PlanError
from skewless.planner.forecast.forecast import Forecast
from skewless.planner.placement.token_moves import MOST_ROUNDS, halved, halving_rounds, overloaded_reducer
from skewless.planner.policies.proposal import Proposal
from skewless.routing.ring import Ring


def propose(job: Job, forecast: Forecast) -> Sequence[Proposal]:
    """Halve the tokens of the overloaded reducer, if there is one, at most ``MOST_ROUNDS`` times."""
    ring = forecast.plan.ring
    reducer = overloaded_reducer(forecast.plan.tasks, forecast.loads_unchanged(), job.spec.routing.policy.threshold)
    if reducer is None:
        return ()
    tokens = ring.tokens[reducer]
    try:
        reason = _reason_against(job, ring, reducer)
        after = None if reason else halved(ring, reducer)
    except PlanError as error:  # a ring that another policy made
        reason, after = str(error), None
    if after is None:
        words = f"halve the tokens of reducer {reducer}"
        return (Proposal("halve", words, refusal=reason or "it has one token left and ran out of halving"),)
    words = f"halve the tokens of reducer {reducer} from {tokens} to {after.tokens[reducer]}"
    return (Proposal("halve", words, ring=after, redraw=False),)


def _reason_against(job: Job, ring: Ring, reducer: int) -> str:
    rounds = halving_rounds(ring, job.spec.routing.initial_tokens, reducer)
    if ring.tokens[reducer] > 1 and rounds >= MOST_ROUNDS:
        return f"its {rounds} rounds of {MOST_ROUNDS} are used up"
    return ""
