"""The actors of the DPA load balancer in discrete time: mappers, queues, reducers and who balances them.

A tick has three turns. The mappers push their next items to the queues of the reducers that the
balancer names (paper, section 2.1). Every so many ticks the queues are looked at, and if one is
overloaded the balancer is asked to relieve its reducer (section 4.1). Then each reducer pops: what
is no longer its own it forwards, until it comes to an item to reduce (section 3). Nothing is drawn
at random, so a run is the same every time.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from skewless.planner.placement.ring_changes import overloaded

#: The paper's setting (section 6).
MAPPERS = 4
REDUCERS = 4
THRESHOLD = 0.2


@dataclass(frozen=True)
class Speeds:
    """How fast the actors are; reducing is what costs, so a reducer takes a tick for one item.

    The paper does not give its actors' speeds. By default the mappers are done in one tick and the
    reducers, if all are busy, in 25: as in a stage of ours, all that is admitted is queued before
    anything is reduced. The table also says what other speeds give.

    Attributes:
        pushes: items that each mapper pushes in a tick.
        first_look: the tick of the first look at the queues.
        look_every: ticks from one look to the next.
    """

    pushes: int = 25
    first_look: int = 1
    look_every: int = 8

    def looks(self, tick: int) -> bool:
        """Whether the queues are looked at in a tick."""
        return tick >= self.first_look and (tick - self.first_look) % self.look_every == 0


SPEEDS = Speeds()


@dataclass(frozen=True)
class Look:
    """What is known when the queues are looked at.

    Attributes:
        overloaded: the reducer to be relieved.
        items: items of the whole input.
        seen: items pushed so far, of each letter.
        queued: ``(letter, item number)`` of all items that wait, in whatever queue.
        processed: items reduced so far by each reducer.
    """

    overloaded: int
    items: int
    seen: Counter[str]
    queued: tuple[tuple[str, int], ...]
    processed: tuple[int, ...]


class Balancer(Protocol):
    """Who says where items go, and changes its mind when a reducer is overloaded."""

    def owner(self, letter: str, item: int) -> int:
        """The reducer of an item."""

    def relieve(self, look: Look) -> bool:
        """Relieve the overloaded reducer; whether anything was changed by it."""


@dataclass(frozen=True)
class Outcome:
    """How a run ended.

    Attributes:
        processed: items reduced by each reducer.
        rounds: how often each reducer was relieved.
        forwarded: how often an item went on to another queue.
        ticks: how long it took.
    """

    processed: tuple[int, ...]
    rounds: tuple[int, ...]
    forwarded: int
    ticks: int

    @property
    def skew(self) -> float:
        """The paper's S."""
        return skew(self.processed)


def skew(processed: Sequence[int]) -> float:
    """``S = (W - U) / (M - U)``: 0 is perfectly even, 1 is all on one reducer.

    DPA load balancer, section 6.1.1, formula 2; M items in all, U = ceil(M / R), W the most of one.
    """
    total = sum(processed)
    fair = -(-total // len(processed))
    return (max(processed) - fair) / (total - fair)


def play(letters: str, balancer: Balancer, limit: int, speeds: Speeds = SPEEDS) -> Outcome:
    """Reduce all items, in the order in which the mappers take them.

    Each reducer may be relieved ``limit`` times at most; a look that changes nothing is no round.
    """
    queues: list[deque[int]] = [deque() for _ in range(REDUCERS)]
    processed, rounds = [0] * REDUCERS, [0] * REDUCERS
    pushed = forwarded = tick = 0
    while sum(processed) < len(letters):
        tick += 1
        for item in range(pushed, min(pushed + MAPPERS * speeds.pushes, len(letters))):
            queues[balancer.owner(letters[item], item)].append(item)
            pushed += 1
        reducer = overloaded([len(queue) for queue in queues], THRESHOLD) if speeds.looks(tick) else None
        if reducer is not None and rounds[reducer] < limit:
            waiting = tuple((letters[item], item) for queue in queues for item in queue)
            look = Look(reducer, len(letters), Counter(letters[:pushed]), waiting, tuple(processed))
            rounds[reducer] += balancer.relieve(look)
        sent: list[tuple[int, int]] = []
        for mine, queue in enumerate(queues):
            while queue:
                item = queue.popleft()
                owner = balancer.owner(letters[item], item)
                if owner == mine:
                    processed[mine] += 1
                    break
                sent.append((owner, item))
        for owner, item in sent:  # an item is on its way until the tick ends
            queues[owner].append(item)
        forwarded += len(sent)
    return Outcome(tuple(processed), tuple(rounds), forwarded, tick)
