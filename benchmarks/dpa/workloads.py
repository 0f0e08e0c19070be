"""The paper's five workloads: what it publishes of them, and letters of which the same is true.

The paper does not publish its letters; ``search`` says how these were found.
"""

from __future__ import annotations

from typing import NamedTuple

from benchmarks.dpa.actors import REDUCERS

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
