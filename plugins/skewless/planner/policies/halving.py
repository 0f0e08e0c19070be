"""``halving``: an overloaded reducer loses half of its tokens, and the ring moves its keys on.

Token halving of the DPA load balancer (sections 4.1 and 4.2). Few keys are disturbed, as slots only move away from the
overloaded reducer; but it may run out of tokens, and a single heavy key stays as heavy wherever it goes.
"""

from __future__ import annotations

from collections.abc import Sequence

from skewless.documents.job import Job
from skewless.errors import PlanError
from skewless.planner.forecast.forecast import Forecast
from skewless.planner.placement.ring_changes import MOST_ROUNDS, halved, halving_rounds, overloaded_reducer
from skewless.planner.policies.proposal import Proposal


def propose(job: Job, forecast: Forecast) -> Sequence[Proposal]:
    """Halve the tokens of the overloaded reducer, if there is one, at most ``MOST_ROUNDS`` times."""
    ring, routing = forecast.plan.ring, job.spec.routing
    reducer = overloaded_reducer(forecast.plan.tasks, forecast.loads_unchanged(), routing.policy.threshold)
    if reducer is None:
        return ()
    words = f"halve the tokens of reducer {reducer}"
    try:
        rounds, after = halving_rounds(ring, routing.initial_tokens, reducer), halved(ring, reducer)
    except PlanError as error:  # a ring that another policy made
        return (Proposal("halve", words, refusal=str(error)),)
    if after is None:
        return (Proposal("halve", words, refusal="it has one token left and ran out of halving"),)
    if rounds >= MOST_ROUNDS:
        return (Proposal("halve", words, refusal=f"its {rounds} rounds of {MOST_ROUNDS} are used up"),)
    words += f" from {ring.tokens[reducer]} to {after.tokens[reducer]}"
    return (Proposal("halve", words, ring=after, redraw=False),)
