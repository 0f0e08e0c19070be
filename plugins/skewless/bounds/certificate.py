"""How near a plan comes to what no plan can beat."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from skewless.bounds.lower_bounds import (
    ROUNDING,
    Bound,
    best_bound,
    fastest_first,
    heaviest_first,
    known_bounds,
    needed_states,
    states_upper,
)
from skewless.documents.certificate import Certificate
from skewless.errors import PlanError

#: A gap of a fraction of a percent comes from integer remainders and from hashing, not from a straggler.
NEAR = 0.02
#: What is said where no task's load is known, and so nothing of balance.
NOT_MEASURED = "not measured: nobody counted how many rows each task had"


def certify(
    total: float,
    tasks: int,
    makespan: float | None,
    heaviest: tuple[str, float] | None,
    splittable: bool,
    *,
    weights: npt.ArrayLike | None = None,
    ways: int | None = None,
    speeds: npt.ArrayLike | None = None,
    states: int | None = None,
    unit: str = "rows",
    predicted: bool = False,
) -> Certificate:
    """Hold a largest load to the best of the bounds that hold and say what follows.

    Args:
        total: rows of all keys.
        tasks: tasks that run side by side, at least 1, however many a plan has: a decision and a finished run are
            both held to all of them being busy all the time.
        makespan: the largest load of a task, in rows; with speeds the largest rows / speed; None if it was not
            measured: then nothing is claimed.
        heaviest: key text and rows of the heaviest key, if one is known.
        splittable: whether a key may be split.
        weights: rows of the known heavy keys, ``heaviest`` among them, in any order, shape ``(keys,)``.
        ways: tasks that a key may be split over, at most; None leaves it free.
        speeds: of the tasks, shape ``(tasks,)``.
        states: (known key, task) pairs of the plan.
        unit: what ``total`` counts, for the conclusion.
        predicted: whether the makespan is a forecast's, which may be too low, and not a measured one.

    Raises:
        PlanError: the numbers cannot belong to one plan: weights above the total or below ``heaviest``,
            another number of speeds than tasks, or a measured makespan below the bound, which no plan can have.
    """
    known = heaviest_first([] if weights is None else weights, total)[0]
    key, rows = heaviest or (None, float(known[0]) if known.size else 0.0)
    if weights is None:
        known = np.array([rows]) if heaviest else known
    elif heaviest and not (known.size and abs(known[0] - rows) <= ROUNDING * rows):
        raise PlanError(
            "certificate", f"weights whose largest is {rows:g}, as the heaviest key", f"{known[:1].tolist()}"
        )
    fastest = None if speeds is None else fastest_first(speeds)
    if fastest is not None and len(fastest) != tasks:
        raise PlanError("certificate", f"speeds of {tasks} tasks", f"{len(fastest)} speeds")
    limit = 1 if not splittable else ways
    bounds = known_bounds(known, total, tasks, limit, fastest)
    best = best_bound(bounds)
    lower = upper = None
    if weights is not None and makespan is not None:
        fast, all_speeds = (1.0, float(tasks)) if fastest is None else (float(fastest[0]), float(fastest.sum()))
        try:
            lower = needed_states(known, float(known.sum()), makespan * fast, makespan * all_speeds, splittable)
        except PlanError:
            lower = None  # a predicted makespan may be a few rows short of what its keys come to
        keys = int(np.count_nonzero(known))
        # Any best plan can be relieved of cycles (a key that meets another twice) without moving a load,
        # within the tasks it uses: then it is a forest, of at most D + W - 1 pairs.
        upper = min(states_upper(keys, tasks), keys * (limit or tasks))
    return Certificate(
        total_rows=total,
        tasks=tasks,
        fair_rows=bounds[0].rows,
        heaviest_key=key,
        heaviest_rows=rows,
        splittable=splittable,
        bound_rows=best.rows,
        makespan_rows=makespan,
        gap=_gap(makespan, best, predicted),
        conclusion=_conclusion(bounds, best, tasks, makespan, heaviest, rows / total if total else 0.0, limit, unit),
        bound_name=best.name,
        unit=unit,
        ways=limit,
        states=states,
        states_lower=lower,
        states_upper=upper,
    )


def _gap(makespan: float | None, best: Bound, predicted: bool) -> float | None:
    """How far above the bound; nothing measured is below it, so such a figure is not to be made to look right."""
    if makespan is None:
        return None
    if predicted:
        return makespan / best.rows - 1.0 if best.rows else 0.0
    if makespan < best.rows * (1.0 - ROUNDING):
        raise PlanError(
            "certificate", f"a makespan of at least {best.rows:g}, the bound ({best.name})", f"{makespan:g}"
        )
    return max(makespan / best.rows, 1.0) - 1.0 if best.rows else 0.0


def _conclusion(
    bounds: list[Bound],
    best: Bound,
    tasks: int,
    makespan: float | None,
    heaviest: tuple[str, float] | None,
    part: float,
    ways: int | None,
    unit: str,
) -> str:
    """What follows: whether more tasks would help, whether it is balanced, or how much is missing."""
    fairest, alone = bounds[0].rows, next((one.rows for one in bounds if one.name == "heaviest key"), 0.0)
    if not fairest:
        return "nothing is queued"
    if makespan is None:
        return NOT_MEASURED
    if alone > fairest:
        who = f"key {heaviest[0][:80]!r}" if heaviest else "the heaviest key"
        why = "its aggregates may not be split" if ways == 1 else f"may be split over {ways} tasks at most"
        # More tasks do separate heavy keys that meet in one, but never bring the load below the one key.
        floor = f" below {alone:,.0f} {unit}" if best.name == "several heavy keys" else ""
        return f"more tasks will not help{floor}: {who} alone is {part:.0%} of the {unit} and {why}"
    if makespan / fairest - 1.0 <= NEAR:
        return "balanced: the largest task is at the fair share"
    gap = makespan / best.rows - 1.0
    if gap <= NEAR:
        rule = "may not be split" if ways == 1 else f"may be split over {ways} tasks at most"
        return (
            f"no plan is clearly better: the {best.keys} heaviest keys, which {rule}, "
            f"cannot be spread more thinly over {tasks} tasks"
        )
    return f"the largest task is {gap:.0%} above the bound"
