"""How the tail of a reducer is divided among its key buckets, as the last stage had it.

A report counts the tail by slot of the ring, and a bucket is another hash. With many light keys buckets are alike. With
a few hundred of middling weight one may have twice the rows of another, and keys that are not named stay unseen. What
tasks had queued tells how the rows to come will be divided, and what they left over how the backlog is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from skewless.planner.placement.placement import Rows, sums
from skewless.routing.plan import RoutingPlan
from skewless.routing.ring import MOST_BUCKETS


@dataclass(frozen=True, eq=False)
class BucketParts:
    """For each reducer of the reported plan the part of its tail in each of the finest buckets there may be.

    Attributes:
        plan: the reported one.
        wave: of rows to come, shape ``(largest reducer + 1, MOST_BUCKETS)``.
        backlog: of rows left over, same shape.
    """

    plan: RoutingPlan
    wave: Rows
    backlog: Rows

    @classmethod
    def measured(cls, plan: RoutingPlan, queued: Rows, left: Rows) -> BucketParts:
        """From the rows of each task that were queued and left over, but named keys and null rows, shape ``(tasks,)``.

        What came differs by chance as well. Of that difference the part is believed by which its squares exceed a
        sample's (James and Stein 1961). What was left over is what it is.
        """
        factors = plan.task_table[:, 2]
        fair = _whole(plan, queued) / factors
        split = (factors > 1) & (fair > 0)
        squares = (queued - fair)[split] ** 2 / (fair * (1.0 - 1.0 / factors))[split]
        chance = float(squares.mean()) if len(squares) else 0.0
        believed = max(0.0, 1.0 - 1.0 / chance) if chance else 0.0
        return cls(plan, _finest(plan, queued, believed), _finest(plan, left, 1.0))

    def tail(self, plan: RoutingPlan, wave: Rows, backlog: Rows) -> Rows:
        """Rows of each task of a plan, given those of each slot of the ring; a slot that moves keeps its buckets."""
        came, goes = self.plan.ring.slot_owners, plan.ring.slot_owners
        reducers = np.zeros((max(plan.ring.reducers) + 1, MOST_BUCKETS))
        for bucket in range(MOST_BUCKETS):
            rows = wave * self.wave[came, bucket] + backlog * self.backlog[came, bucket]
            reducers[:, bucket] = np.bincount(goes, weights=rows, minlength=len(reducers))
        found = np.zeros(len(plan.tasks))
        owners, buckets, factors = plan.task_table.T
        for bucket in range(MOST_BUCKETS):
            # Bucket b of f is made up of the buckets b, b + f, b + 2 f, ... of more of them.
            found += np.where(bucket % factors == buckets, reducers[owners, bucket], 0.0)
        return found


def _whole(plan: RoutingPlan, rows: Rows) -> Rows:
    """For each task the rows of its reducer."""
    reducers = plan.task_table[:, 0]
    return sums(reducers, rows, int(reducers.max()) + 1)[reducers]


def _finest(plan: RoutingPlan, rows: Rows, believed: float) -> Rows:
    reducers, buckets, factors = plan.task_table.T
    fair = _whole(plan, rows) / factors
    off = np.divide(rows - fair, fair, out=np.zeros(len(rows)), where=fair > 0)
    part = (1.0 + believed * off) / MOST_BUCKETS
    found = np.zeros((int(reducers.max()) + 1, MOST_BUCKETS))
    for bucket in range(MOST_BUCKETS):
        mine = bucket % factors == buckets
        found[reducers[mine], bucket] = part[mine]
    return found
