"""``bounded_load``: a key goes to the first reducer clockwise from its hash that has room for it.

Consistent hashing with bounded loads (Mirrokni, Thorup and Zadimoghaddam, SODA 2018): no reducer
takes more than c times the fair share, and what it cannot take walks on along the ring. The paper
has keys of one size and places them as they come; here they have sizes, so the heaviest come
first, and one that fits nowhere goes to the least loaded reducer. No key is ever split.
"""

from collections.abc import Sequence

import numpy as np

from skewless.documents.job import Job
from skewless.planner.forecast.forecast import Forecast
from skewless.planner.placement.placement import Indices, Placement, Proposal, Rows
from skewless.routing.plan import RoutingPlan

#: Rounding errors of sums do not make a reducer full.
_TOLERANCE = 1e-9


def propose(job: Job, forecast: Forecast) -> Sequence[Proposal]:
    """Every named key whole, within ``routing.policy.capacity`` times the fair share as far as that can be."""
    plan, keys = forecast.plan_with(factors={}), forecast.keys  # a reducer is one task
    if plan.task_count == 1 or not keys:
        return ()
    base = forecast.tail_rows(plan)
    fair = float(base.sum() + forecast.head_loads.sum()) / plan.task_count
    capacity = fair * job.spec.routing.policy.capacity
    placement, homeless = _walked(plan, keys, forecast.head_loads, base, capacity)
    away = int((placement.task != forecast.on_ring(plan)).sum())
    words = f"place {len(keys):,} keys within {capacity:,.0f} rows a reducer: {away:,} of them walk on along the ring"
    if homeless:
        words += f"; {homeless:,} fit nowhere and go to the least loaded"
    return (Proposal("bounded load", words, placement, factors={}),)


def _walked(plan: RoutingPlan, keys: Sequence[str], rows: Rows, base: Rows, capacity: float) -> tuple[Placement, int]:
    """Each key, heaviest first, at the first reducer with room, on a ring of one task each; and how many found none."""
    # Neighbouring slots of one reducer are one stop on the way around the ring.
    changes = np.diff(plan.slot_tasks, prepend=-1) != 0
    stops, stop_of = plan.slot_tasks[changes].astype(np.int64), np.cumsum(changes) - 1
    room = capacity * (1.0 + _TOLERANCE) - base
    tasks = np.zeros(len(keys), dtype=np.int64)
    homeless = 0
    for number in np.argsort(-rows, kind="stable").tolist():
        size, start = rows[number], int(stop_of[plan.ring.slot_of(keys[number])])
        task = stops[start]
        if room[task] < size:
            roomiest = int(np.argmax(room))
            homeless += bool(room[roomiest] < size)
            task = roomiest if room[roomiest] < size else _first_with_room(stops, room, start, size)
        tasks[number] = task
        room[task] -= size
    return Placement.pinned(tasks), homeless


def _first_with_room(stops: Indices, room: Rows, start: int, size: float) -> int:
    """The task at the first stop at or after a start, round the ring, that has room; there is one."""
    reach = 64
    while True:
        fits = room[stops[start : start + reach]] >= size
        if fits.any():
            return int(stops[start + int(np.argmax(fits))])
        start += reach
        start, reach = (0, reach) if start >= len(stops) else (start, 2 * reach)
