"""What a policy hands to the planner."""

from __future__ import annotations

from typing import NamedTuple

from skewless.routing_plan import Shares


class Proposal(NamedTuple):
    """A change of the head; the ring stays.

    Attributes:
        action: its name.
        head: the shares of every head key of the forecast.
        sentence: what it does, in words.
    """

    action: str
    head: dict[str, Shares]
    sentence: str
