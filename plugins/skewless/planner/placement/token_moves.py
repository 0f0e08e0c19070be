"""The moves of the DPA load balancer, and the trigger that asks for one: rings in, rings out.

A reducer that is overloaded is relieved by changing how many tokens the reducers hold on the
ring: halving takes half of its own away, doubling doubles those of all others (DPA load balancer,
sections 4.1 and 4.2). A ring shows how often each was done, so that nobody has to keep count.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from skewless.errors import PlanError
from skewless.planner.placement.placement import Rows
from skewless.routing.ring import LARGEST_RING, Ring, VirtualTask

#: One reducer is relieved so often: a halved one has a sixteenth of its tokens left then.
MOST_ROUNDS = 4


def overloaded(queues: Sequence[float], threshold: float) -> int | None:
    """The index of the reducer that is overloaded, if there is one: ``Qmax > Qs (1 + threshold)``.

    DPA load balancer, section 4.1, formula 1: the longest queue, if it is longer than the second longest by more than
    the threshold (the paper's tau). Of two longest none is overloaded, and one reducer alone never is.
    """
    if len(queues) < 2:
        return None
    longest = max(range(len(queues)), key=queues.__getitem__)
    second = max(queue for reducer, queue in enumerate(queues) if reducer != longest)
    return longest if queues[longest] > second * (1.0 + threshold) else None


def overloaded_reducer(tasks: Sequence[VirtualTask], loads: Rows, threshold: float) -> int | None:
    """The reducer whose tasks together are overloaded, if there is one."""
    first = [at for at, task in enumerate(tasks) if task.bucket == 0]
    found = overloaded(np.add.reduceat(loads, first).tolist(), threshold)
    return None if found is None else tasks[first[found]].reducer


def is_power_of_two(n: int) -> bool:
    """Whether a number is 1, 2, 4, 8 and so on."""
    return n > 0 and n & (n - 1) == 0


def halved(ring: Ring, reducer: int) -> Ring | None:
    """Take the upper half of its tokens from a reducer; slots move only away from it. None if it has one token left.

    DPA load balancer, section 4.2, token halving. The number of its tokens is a power of two, or it is a ``PlanError``.
    """
    tokens = 1 << _log2_tokens(ring, reducer)
    if tokens == 1:
        return None
    return ring.with_tokens({**ring.tokens, reducer: tokens // 2})


def doubled(ring: Ring, reducer: int, limit: int) -> Ring | None:
    """Double the tokens of everyone but an overloaded reducer; no slot moves to it.

    DPA load balancer, section 4.2, token doubling. None where a reducer would hold more than the limit, or is alone.
    """
    _refuse_stranger(ring, reducer)
    tokens = {other: count if other == reducer else 2 * count for other, count in ring.tokens.items()}
    if sum(tokens.values()) > LARGEST_RING:
        return None
    if len(tokens) == 1 or any(tokens[other] > limit for other in tokens if other != reducer):
        return None
    return ring.with_tokens(tokens)


def halving_rounds(ring: Ring, initial_tokens: int, reducer: int) -> int:
    """How often a reducer was halved, where all began with the same tokens, a power of two; else a ``PlanError``."""
    rounds = initial_tokens.bit_length() - 1 - _log2_tokens(ring, reducer)
    if not is_power_of_two(initial_tokens) or rounds < 0:
        came = f"{ring.tokens[reducer]} of {initial_tokens} tokens"
        raise PlanError(f"reducer {reducer}", "its first tokens, a power of two, halved or not", came)
    return rounds


def doubling_rounds(ring: Ring, initial_tokens: int, reducer: int) -> int:
    """How often all others were doubled for a reducer, where all began with the same tokens, a power of two.

    With n_i rounds for reducer i and N for all of them, reducer j holds ``2**(N - n_j)`` times its first tokens. So the
    logarithms of these factors add up to ``(R - 1) N``, which gives N, and then n_j. It is a ``PlanError`` if no number
    of doublings leads to this ring.
    """
    began = initial_tokens.bit_length() - 1
    logs = {other: _log2_tokens(ring, other) - began for other in ring.reducers}
    _refuse_stranger(ring, reducer)
    others = len(logs) - 1
    rounds, odd = divmod(sum(logs.values()), others) if others else (0, logs[reducer])
    if not is_power_of_two(initial_tokens) or odd or min(logs.values()) < 0 or max(logs.values()) > rounds:
        required = f"tokens that doubling leads to from {initial_tokens} each"
        raise PlanError("ring", required, str(dict(ring.tokens))[:120])
    return rounds - logs[reducer]


def _log2_tokens(ring: Ring, reducer: int) -> int:
    _refuse_stranger(ring, reducer)
    tokens = ring.tokens[reducer]
    if not is_power_of_two(tokens):
        raise PlanError(f"reducer {reducer}", "a number of tokens that is a power of two", f"{tokens}")
    return tokens.bit_length() - 1


def _refuse_stranger(ring: Ring, reducer: int) -> None:
    if reducer not in ring.tokens:
        raise PlanError(f"reducer {reducer}", f"one of the {len(ring.tokens)} on the ring", "another")
