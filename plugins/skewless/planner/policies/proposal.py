"""What a policy hands to the planner."""

from __future__ import annotations

from typing import NamedTuple

from skewless.planner.placement.placement import Placement
from skewless.routing.ring import Ring


class Proposal(NamedTuple):
    """A change, or the reason why one that was due cannot be made.

    Attributes:
        placement: of every head key of the forecast, by task index of the proposed plan; null leaves all of them to
            ring and buckets.
        ring: the new ring; null keeps the present one.
        factors: the new elasticity factors; null keeps the present ones.
        redraw: whether split keys and rows without a key are drawn anew. Needed where what is left of a split key is no
            fair sample of its shares; not where shares are shifted piece by piece.
        refusal: why it cannot be done; empty where it can.
    """

    action: str
    sentence: str
    placement: Placement | None = None
    ring: Ring | None = None
    factors: dict[int, int] | None = None
    redraw: bool = True
    refusal: str = ""
