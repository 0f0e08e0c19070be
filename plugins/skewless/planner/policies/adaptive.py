"""``adaptive``: heavy keys are placed one by one on top of the tail the ring gave each task.

The tail is many light keys: a ring spreads it well enough, and nobody has to name its keys.
What a ring cannot spread is the head. So the tail's load of each task is taken as given, and the head keys are
placed on top of it, up to one common level. A key that does not fit on one task is split, and its partial states
are merged at the end. If keys may not be split, they are placed whole.

Two placements are proposed. ``rebalance`` leaves rows where they are as far as the level allows; ``repack`` starts
from nothing, which may need fewer pieces. If the head is too light to level the tail, tokens even out the tail
itself. Reducers come and go as rows and the price of a task say, as far as the spec allows. Key buckets are split where
slots have no task, or where a stage only drains and a task is too full, and merged where two would fit. The planner
prices all proposals.
"""

import math
from collections.abc import Iterator, Sequence

import numpy as np

from skewless.documents.job import Job
from skewless.planner.forecast.forecast import Forecast
from skewless.planner.forecast.observed_waves import TASK_COST_ROWS
from skewless.planner.placement.head_keys import place_whole, place_whole_in_place, pour, spread, water_level
from skewless.planner.placement.placement import Placement, Proposal, Rows, sums
from skewless.planner.placement.rebalancing import rebalance
from skewless.planner.placement.ring_changes import HYSTERESIS, evened, for_free_slots, for_full_tasks, for_small_tasks
from skewless.routing.ring import Ring

#: The tail is left alone while no task's tail is above the level by more than this.
LEVEL_ENOUGH = 1.005


def propose(job: Job, forecast: Forecast) -> Sequence[Proposal]:
    """Place the head on the ring as it is; and on other rings, if the tail is uneven or tasks are missing."""
    if forecast.plan.task_count == forecast.slots == 1:
        return ()
    proposals = list(_on_this_ring(job, forecast))
    plan, tail = forecast.plan, forecast.tail_rows(forecast.plan)
    if forecast.costs_unlike and plan.factors:
        return proposals  # each slot has several tasks on purpose
    level = water_level(tail, float(forecast.head_loads.sum()))
    heaviest = float(_alone(job, forecast, level).max(initial=0.0))
    # Within half a percent a ring is as even as its slots allow, and moves would be for nothing.
    if len(tail) > 1 and max(float(tail.max()), heaviest) > level * LEVEL_ENOUGH:
        proposals += _evener_tail(job, forecast, level)
    reducers = _reducers(job, forecast)
    if reducers != len(plan.ring.tokens):
        proposals += _other_reducers(job, forecast, reducers)
    return [*proposals, *_other_buckets(job, forecast, tail, level, more=reducers == len(plan.ring.tokens))]


def _reducers(job: Job, forecast: Forecast) -> int:
    """As many as there are slots, as far as the spec allows; of few rows fewer, as a task has a price.

    Q rows in n even tasks on W slots cost ``Q / n`` and ``c n / W``, least where n is the square root of ``Q W / c``.
    """
    routing = job.spec.routing
    useful = round(math.sqrt(forecast.queued_rows * forecast.slots / TASK_COST_ROWS))
    return max(1, routing.least_reducers, min(routing.most_reducers, forecast.slots, useful))


def _on_this_ring(job: Job, forecast: Forecast) -> Iterator[Proposal]:
    if not forecast.keys:
        return
    rows, base, old = forecast.head_loads, forecast.tail_rows(forecast.plan), forecast.placement_now
    if not job.splittable:
        yield _placing(forecast, "rebalance whole", place_whole_in_place(rows, base, old))
        yield _placing(forecast, "place whole", place_whole(rows, base))
        return
    if forecast.costs_unlike:
        yield _placing(forecast, "spread", spread(rows, base, forecast.falling))
        return
    amounts = forecast.piece_loads
    # Beside what lies where it lies: the tail.
    held = sums(old.task, amounts, len(base))
    base = np.maximum(forecast.loads_unchanged - held, 0.0)
    yield _placing(forecast, "rebalance", rebalance(old, amounts, base), redraw=False)
    yield _placing(forecast, "repack", pour(rows, base))


def _evener_tail(job: Job, forecast: Forecast, level: float) -> Iterator[Proposal]:
    slots = forecast.tail_backlog + forecast.tail_wave
    slots *= forecast.row_costs.tail_cost
    plan = forecast.plan
    fixed = sums(forecast.placement_now.first_tasks, _alone(job, forecast, level), plan.task_count)
    first = np.flatnonzero(plan.task_table[:, 1] == 0)
    ring = evened(plan.ring, slots, np.add.reduceat(fixed, first), plan.task_table[first, 2].astype(float))
    if ring != plan.ring:
        before = plan.ring.tokens
        changed = sum(before.get(reducer) != count for reducer, count in ring.tokens.items())
        words = f"change the tokens of {changed:,} reducers"
        yield _elsewhere(job, forecast, "even out tail", words, ring, plan.factors)


def _alone(job: Job, forecast: Forecast, level: float) -> Rows:
    """Load of each key that must stay whole and is above the level by itself, 0 of the others, shape ``(keys,)``.

    Its task should have nothing else. That pays once no input comes after this stage: before that a budget ends the
    stage long before the key is done.
    """
    if job.splittable or forecast.later_rows:
        return np.zeros(len(forecast.keys))
    return np.where(forecast.head_loads > level, forecast.head_loads, 0.0)


def _other_reducers(job: Job, forecast: Forecast, wanted: int) -> Iterator[Proposal]:
    tokens = dict(forecast.plan.ring.tokens)
    usual = int(np.median(list(tokens.values())))
    numbers = list(tokens)[:wanted]
    numbers += [number for number in range(wanted) if number not in tokens][: wanted - len(numbers)]
    ring = forecast.plan.ring.with_tokens({number: tokens.get(number, usual) for number in sorted(numbers)})
    change = wanted - len(tokens)
    words = f"{'add' if change > 0 else 'remove'} {abs(change):,} reducers, {wanted:,} in all"
    yield _elsewhere(job, forecast, "add reducers" if change > 0 else "remove reducers", words, ring, {})


def _other_buckets(job: Job, forecast: Forecast, tail: Rows, level: float, *, more: bool) -> Iterator[Proposal]:
    """Key buckets for slots without a task (``more``), for tasks that are too full, or fewer of them (SEP-32)."""
    plan, tasks = forecast.plan, len(tail)
    wanted = {"merge tasks": for_small_tasks(plan, tail, level * HYSTERESIS)}
    if more and tasks < forecast.slots:
        wanted["split tasks"] = for_free_slots(plan, tail, forecast.slots - tasks)
    elif not forecast.wave_rows:
        # Tasks that wait for others end a budget, so this is for the stage that drains: it has none.
        wanted["split full tasks"] = for_full_tasks(plan, tail, level * LEVEL_ENOUGH)
    for action, factors in wanted.items():
        if factors != plan.factors:
            count = forecast.plan_with(factors=factors).task_count
            words = f"key buckets for {len(factors):,} reducers, {count:,} tasks in all"
            yield _elsewhere(job, forecast, action, words, plan.ring, factors)


def _elsewhere(job: Job, forecast: Forecast, action: str, words: str, ring: Ring, factors: dict[int, int]) -> Proposal:
    plan = forecast.plan_with(ring, factors)
    rows, base = forecast.head_loads, forecast.tail_rows(plan)
    if not plan.same_tasks(forecast.plan):
        placed = pour(rows, base) if job.splittable else place_whole(rows, base)
        return _placing(forecast, action, placed, words)._replace(ring=ring, factors=factors)
    old = forecast.placement_now
    placed = rebalance(old, forecast.piece_loads, base) if job.splittable else place_whole_in_place(rows, base, old)
    return _placing(forecast, action, placed, words, redraw=False)._replace(ring=ring, factors=factors)


def _placing(forecast: Forecast, action: str, placement: Placement, before: str = "", redraw: bool = True) -> Proposal:
    split = placement.split.tolist()
    words = f"pin {placement.keys - len(split):,} keys"
    if split:
        named = ", ".join(repr(forecast.keys[number][:20]) for number in split[:3])
        words += f", split {len(split):,} ({named}{', ...' if len(split) > 3 else ''})"
    return Proposal(action, f"{before}, {words}" if before else words, placement, redraw=redraw)
