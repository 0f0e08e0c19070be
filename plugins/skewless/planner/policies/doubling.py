"""``doubling``: all reducers but the overloaded one get twice as many tokens, and take keys from it.

Token doubling of the DPA load balancer (sections 4.1 and 4.2). It does not run out as halving does, but
slots move between the other reducers as well. In the paper all begin with one token each, which is the
least even ring there is: so they do with ``strict``, and else with as many as under any policy.
"""

from __future__ import annotations

from collections.abc import Sequence

from skewless.documents.job import Job
from skewless.errors import PlanError
from skewless.planner.forecast.forecast import Forecast
from skewless.planner.placement.ring_changes import MOST_ROUNDS, doubled, doubling_rounds, overloaded_reducer
from skewless.planner.policies.proposal import Proposal
from skewless.routing.ring import LARGEST_RING

#: Tokens that one reducer may hold, at most: as many as a spec may ask for to begin with.
TOKEN_LIMIT = 4096
_TOO_MANY = f"a reducer would hold more than {TOKEN_LIMIT:,} tokens, or the ring more than {LARGEST_RING:,}"


def propose(job: Job, forecast: Forecast) -> Sequence[Proposal]:
    """Double the tokens of all but the overloaded reducer, if there is one, at most ``MOST_ROUNDS`` times."""
    ring, routing = forecast.plan.ring, job.spec.routing
    reducer = overloaded_reducer(forecast.plan.tasks, forecast.loads_unchanged(), routing.policy.threshold)
    if reducer is None:
        return ()
    words = f"double the tokens of all reducers but {reducer}"
    try:
        rounds = doubling_rounds(ring, routing.initial_tokens, reducer)
    except PlanError as error:  # a ring that another policy made
        return (Proposal("double", words, refusal=str(error)),)
    if rounds >= MOST_ROUNDS:
        return (Proposal("double", words, refusal=f"its {rounds} rounds of {MOST_ROUNDS} are used up"),)
    after = doubled(ring, reducer, TOKEN_LIMIT)
    if after is None:
        return (Proposal("double", words, refusal=_TOO_MANY),)
    words += f", from {sum(ring.tokens.values()):,} to {sum(after.tokens.values()):,} in all"
    return (Proposal("double", words, ring=after, redraw=False),)
