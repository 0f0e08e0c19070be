"""When a day is final: by how the rows of earlier days have come.

The *delay curve* of a day says which share of its rows had come so many days after it. The rows are those of the last
day that it was looked at, ``horizon`` days later: as long as it is in the window. A day is *settled* from the delay on
at which all but one row in a thousand are there, and stay.

A day is taken to be final with the delay by which ``EXPECTED`` of the earlier days had settled: of *n* days the
``ceil((n + 1) EXPECTED)``-th, or the last one of fewer. If days are like each other, in whatever order, the next one
has settled by then with a probability of at least ``min(EXPECTED, n / (n + 1))`` (a conformal quantile: Vovk,
Gammerman, Shafer: Algorithmic Learning in a Random World, 2005). ``tests/seasons.py`` measures it.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Collection, Sequence
from statistics import median
from typing import NamedTuple

from skewless.documents.nights import Arrivals, Came

#: Earlier days that are needed, how many are to be settled, and from which share of its rows a day is.
FEWEST, EXPECTED, SETTLED = 10, 0.99, 0.999
#: No day is looked at for longer.
MOST_DAYS = 60


class Delays(NamedTuple):
    """How days of a job come.

    Attributes:
        shares: of the rows that have come, by days after their own, as a rule: the median.
        final: days after which a day is final; None if days go on changing for as long as they are looked at.
        expected: the probability that a day has settled by then, at least.
    """

    shares: tuple[float, ...]
    final: int | None
    days: int
    expected: float


def horizon_of(longest: int | None) -> int:
    """For how many days a day is looked at, by the longest window."""
    return min(MOST_DAYS, MOST_DAYS if longest is None else longest - 1)


def delays_of(arrivals: Sequence[Arrivals], nights: Collection[int], horizon: int) -> Delays | None:
    """How days come, by those that were looked at from their own night to the last one; None if they are few.

    Args:
        nights: the ordinals of the days that runs have computed. A day that was not looked at ``horizon`` days later
            is left out: what came for it meanwhile is not known.
    """
    whole = [one for one in arrivals if one.came[0][0] == 0 and day_of(one.part) + horizon in nights]
    if len(whole) < FEWEST or horizon < 1:
        return None
    curves = [curve_of(one.came, horizon) for one in whole]
    settled = sorted(map(settled_at, curves))
    rank = min(len(settled), math.ceil((len(settled) + 1) * EXPECTED))
    final = settled[rank - 1]
    return Delays(
        shares=tuple(median(curve[delay] for curve in curves) for delay in range(horizon + 1)),
        final=final if final < horizon else None,
        days=len(whole),
        expected=min(EXPECTED, len(whole) / (len(whole) + 1)),
    )


def curve_of(came: Sequence[Came], horizon: int) -> list[float]:
    """The share of its rows that a day had, by days after it.

    Where rows were taken out again the share is that of those which stayed, as both are another result than the last.

    >>> curve_of([(0, 90), (2, 100)], 3)
    [0.9, 0.9, 1.0, 1.0]
    """
    seen = {delay: rows for delay, rows in came if delay <= horizon}
    rows, last = seen[0], seen[max(seen)]
    curve = []
    for delay in range(horizon + 1):
        rows = seen.get(delay, rows)
        curve.append(1.0 if rows == last else min(rows, last) / max(rows, last))
    return curve


def settled_at(curve: Sequence[float]) -> int:
    """From which delay on a day has all but one row in a thousand, and keeps them.

    >>> settled_at([0.9, 1.0, 0.5, 1.0]), settled_at([1.0, 1.0])
    (3, 0)
    """
    return max((delay + 1 for delay, share in enumerate(curve) if share < SETTLED), default=0)


def day_of(part: str) -> int:
    """The ordinal of a part's day."""
    return dt.date.fromisoformat(part).toordinal()
