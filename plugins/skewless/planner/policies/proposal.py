"""What a policy hands to the planner, and what policies that give keys choices have in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from skewless.documents.job import Job
from skewless.planner.forecast.forecast import Forecast
from skewless.planner.placement.greedy_d import heavy, placement_in_words, pour_over_choices
from skewless.planner.placement.placement import Placement, Rows
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


def over_choices(
    job: Job, forecast: Forecast, action: str, choices: Callable[[Rows, int], int], words: str
) -> Sequence[Proposal]:
    """Head keys over as many choices each as ``choices`` says, other named keys over two, afresh.

    ``choices`` is asked with the shares of the head keys, descending, and the number of tasks; ``words`` say what is
    done, with the numbers of head keys, choices and other keys.
    """
    keys, loads, tail = forecast.keys, forecast.head_loads, forecast.tail_rows(forecast.plan)
    tasks, total = len(tail), float(tail.sum() + loads.sum())
    if tasks == 1 or not keys or not total:
        return ()
    shares = loads / total
    head = heavy(shares, tasks)
    wanted = choices(-np.sort(-shares[head]), tasks)
    placement = pour_over_choices(keys, loads, tail, np.where(head, wanted, 2), splittable=job.splittable)
    told = words.format(int(head.sum()), wanted, int((~head).sum()))
    return (Proposal(action, f"{told}: {placement_in_words(placement, keys)}", placement),)
