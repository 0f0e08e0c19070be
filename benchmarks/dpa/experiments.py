"""The paper's two experiments: Table 1, and S against the rounds that each reducer may have (Figure 3).

The paper does not publish the letters of its five workloads. Of ours is true what it publishes of its own; ``search``
says how these were found.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

from benchmarks.dpa.actors import MAPPERS, REDUCERS, SPEEDS, THRESHOLD, Balancer, Outcome, Speeds, play
from benchmarks.dpa.balancers import HALVING_TOKENS, RING_BITS, Adaptive, Doubling, Halving

#: Items of a workload (paper, section 6.2).
ITEMS = 100
#: Rounds per reducer up to which the paper's Figure 3 goes.
MOST_ROUNDS = 8


class Published(NamedTuple):
    """A cell of the paper's Table 1.

    Attributes:
        start: S without load balancing.
        balanced: S with it, at most one round per reducer.
    """

    start: float
    balanced: float


PUBLISHED: dict[str, dict[str, Published]] = {
    "WL1": {"halving": Published(0.00, 0.08), "doubling": Published(1.00, 0.20)},
    "WL2": {"halving": Published(0.00, 0.00), "doubling": Published(0.00, 0.08)},
    "WL3": {"halving": Published(1.00, 1.00), "doubling": Published(1.00, 0.75)},
    "WL4": {"halving": Published(0.80, 0.52), "doubling": Published(0.49, 0.11)},
    "WL5": {"halving": Published(0.20, 0.20), "doubling": Published(0.55, 0.12)},
}

#: The items of each workload, in the order in which the mappers take them.
LETTERS: dict[str, str] = {
    "WL1": "OnOJJJOEpnFOFpOGOOFpJOpJOnEpGnEnOOpnnppEnnOGpJOEJOpOOpEJOpGGJnJGnEJnEEJFOJCOOOnGOnEpnnpEOGJCnnnJJOGO",
    "WL2": "iklpiphplhlpliilllplhipilpglphpkipplhlpilhllgghlkpipiglkpligpppphplhpllgkphghklihklhTihplihlkhpgipih",
    "WL3": "H" * ITEMS,
    "WL4": "syZssagfyyasZssqyyyyayssyyisysZyZyfsssZZsfyiZiZsyZsyyTsEZssysyfZZfZassZZEyfsssZsssfskqysyyyisTiyyEsy",
    "WL5": "sEEeOEEsOOyOfOgOyEOHeOeOEOOfOOfgOEOEEEeyOgEeOOyyeHffEgOfEEEOEsgfOOyOOOgEEgfgEfEHOpOfHEeHEEsgOOEOEeeg",
}


def largest_load(skew: float) -> int:
    """The items of the most loaded reducer at which S is this, to two decimals."""
    fair = -(-ITEMS // REDUCERS)
    return round(fair + skew * (ITEMS - fair))


#: For each method of the paper, tokens of each reducer at the start.
STARTS = {"halving": HALVING_TOKENS, "doubling": 1}
CELLS = tuple((workload, start) for workload in PUBLISHED for start in STARTS)
TOKEN_MOVES: dict[str, Callable[[int], Balancer]] = {"halving": Halving, "doubling": Doubling}
PLANNERS: dict[str, Callable[[int], Balancer]] = {"adaptive": Adaptive}
#: What else the actors might be like: slower and faster mappers, and a first look when reducing has begun.
OTHER_SPEEDS = {
    **{f"{pushes} pushes a tick": Speeds(pushes=pushes) for pushes in (2, 4, 5, 6, 8, 10, 13, 25)},
    **{f"first look in tick {tick}": Speeds(first_look=tick) for tick in (2, 4, 8)},
}


#: S of one item more on the fullest reducer, and what is lost in rounding.
ONE_ITEM = 1 / (ITEMS - ITEMS // REDUCERS) + 1e-9


def run(workload: str, start: str, method: str, rounds: int, speeds: Speeds = SPEEDS) -> Outcome:
    """One run of a cell: by a planner, or by the token move that the ring of the start is made for."""
    balancer = PLANNERS[method] if method in PLANNERS else TOKEN_MOVES[start]
    return play(LETTERS[workload], balancer(STARTS[start]), rounds, speeds)


def results() -> dict[str, Any]:
    """All figures, as one JSON document; the same every time."""
    return {
        "setting": {
            "mappers": MAPPERS,
            "reducers": REDUCERS,
            "threshold": THRESHOLD,
            "ring_bits": RING_BITS,
            "tokens_at_start": STARTS,
            "pushes_per_mapper_and_tick": SPEEDS.pushes,
            "first_look_tick": SPEEDS.first_look,
            "look_every_ticks": SPEEDS.look_every,
            "letters": LETTERS,
        },
        "cells": [cell(workload, start) for workload, start in CELLS],
        "at_other_speeds": {words: skews_at(speeds) for words, speeds in OTHER_SPEEDS.items()},
    }


def cell(workload: str, start: str) -> dict[str, Any]:
    """One cell of Table 1 and the curves of Figure 3 that belong to it; S by 0 to 8 rounds per reducer."""
    published = PUBLISHED[workload][start]
    outcomes = {method: by_rounds(workload, start, method) for method in ("paper's move", *PLANNERS)}
    curves = {method: [outcome.skew for outcome in some] for method, some in outcomes.items()}
    once = {method: some[1] for method, some in outcomes.items()}
    return {
        "workload": workload,
        "start": start,
        "published": published._asdict(),
        "skew_without": curves["paper's move"][0],
        "skew_with": {method: outcome.skew for method, outcome in once.items()},
        "processed_with": {method: list(outcome.processed) for method, outcome in once.items()},
        "rounds_with": {method: list(outcome.rounds) for method, outcome in once.items()},
        "skew_by_rounds": curves,
    }


def by_rounds(workload: str, start: str, method: str) -> list[Outcome]:
    """How a cell ends with 0, 1, ... rounds per reducer; where no reducer used all of its, more give the same."""
    found = [run(workload, start, method, 0)]
    for rounds in range(1, MOST_ROUNDS + 1):
        free = rounds > 1 and max(found[-1].rounds) < rounds - 1
        found.append(found[-1] if free else run(workload, start, method, rounds))
    return found


def misses(cell: dict[str, Any], method: str) -> list[str]:
    """Which of the aims a planner misses in a cell.

    At most the paper's S with its move, to two decimals; 0 where one letter is all there is; never
    above the start; never worse by more rounds, beyond one item: which of the last few items a share
    draws is luck.
    """
    curve = cell["skew_by_rounds"][method]
    found = {
        "above the paper": round(curve[1], 2) > cell["published"]["balanced"],
        "not 0 on WL3": cell["workload"] == "WL3" and curve[1] > 0,
        "above its start": max(curve) > curve[0],
        "worse by a round": any(later > earlier + ONE_ITEM for earlier, later in pairwise(curve)),
    }
    return [aim for aim, missed in found.items() if missed]


def skews_at(speeds: Speeds) -> dict[str, float]:
    """S of the planner in each cell, by workload and start, with one round per reducer."""
    return {f"{workload} {start}": run(workload, start, "adaptive", 1, speeds).skew for workload, start in CELLS}


def bound(workload: str, start: str) -> float:
    """What S is at most to be in a cell: the paper's with its move or without; 0 where one letter is all there is."""
    return 0.0 if workload == "WL3" else min(PUBLISHED[workload][start])
