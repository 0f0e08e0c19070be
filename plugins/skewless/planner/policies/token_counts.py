"""``halving`` and ``doubling``: the token counts of the DPA load balancer (sections 4.1 and 4.2).

With ``halving`` an overloaded reducer loses half of its tokens, and the ring moves its keys on. Few keys are disturbed,
as slots only move away from it; but it may run out of tokens, and a single heavy key stays as heavy wherever it goes.

With ``doubling`` all reducers but the overloaded one get twice as many tokens, and take keys from it. It does not run
out as halving does, but slots move between the other reducers as well. In the paper all begin with one token each,
which is the least even ring there is: so they do with ``strict``, and else with as many as under any policy.
"""

from collections.abc import Sequence

from skewless.documents.job import Job
from skewless.planner.forecast.forecast import Forecast
from skewless.planner.placement.placement import Proposal
from skewless.planner.placement.ring_changes import (
    MOST_ROUNDS,
    doubled,
    doubling_rounds,
    halved,
    halving_rounds,
    overloaded_reducer,
)
from skewless.routing.ring import LARGEST_RING

#: Tokens that one reducer may hold, at most: as many as a spec may ask for to begin with.
TOKEN_LIMIT = 4096
_USED_UP = f"its {{}} rounds of {MOST_ROUNDS} are used up"
_TOO_MANY = f"a reducer would hold more than {TOKEN_LIMIT:,} tokens, or the ring more than {LARGEST_RING:,}"


def propose_halving(job: Job, forecast: Forecast) -> Sequence[Proposal]:
    """Halve the tokens of the overloaded reducer, if there is one, at most ``MOST_ROUNDS`` times."""
    reducer = _overloaded(job, forecast)
    if reducer is None:
        return ()
    ring, sentence = forecast.plan.ring, f"halve the tokens of reducer {reducer}"
    after = halved(ring, reducer)
    if after is None:
        return (Proposal("halve", sentence, refusal="it has one token left and ran out of halving"),)
    if (rounds := halving_rounds(ring, job.spec.routing.initial_tokens, reducer)) >= MOST_ROUNDS:
        return (Proposal("halve", sentence, refusal=_USED_UP.format(rounds)),)
    sentence += f" from {ring.tokens[reducer]} to {after.tokens[reducer]}"
    return (Proposal("halve", sentence, ring=after, redraw=False),)


def propose_doubling(job: Job, forecast: Forecast) -> Sequence[Proposal]:
    """Double the tokens of all but the overloaded reducer, if there is one, at most ``MOST_ROUNDS`` times."""
    reducer = _overloaded(job, forecast)
    if reducer is None:
        return ()
    ring, sentence = forecast.plan.ring, f"double the tokens of all reducers but {reducer}"
    if (rounds := doubling_rounds(ring, job.spec.routing.initial_tokens, reducer)) >= MOST_ROUNDS:
        return (Proposal("double", sentence, refusal=_USED_UP.format(rounds)),)
    after = doubled(ring, reducer, TOKEN_LIMIT)
    if after is None:
        return (Proposal("double", sentence, refusal=_TOO_MANY),)
    sentence += f", from {sum(ring.tokens.values()):,} to {sum(after.tokens.values()):,} in all"
    return (Proposal("double", sentence, ring=after, redraw=False),)


def _overloaded(job: Job, forecast: Forecast) -> int | None:
    return overloaded_reducer(forecast.plan.tasks, forecast.loads_unchanged, job.spec.routing.policy.threshold)
