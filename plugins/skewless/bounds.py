"""What no plan can beat, and how near one comes to it.

Placing keys on tasks is the makespan problem of parallel machines: keys are jobs, tasks are machines, and a key that
may be split is a job that may be preempted and run in parallel with itself. All bounds here are additive in their unit:
rows, or rows times a cost per row. With speeds, a load is divided by its task's speed, and the unit is that of a task
of speed 1.

The weights given may be some of the keys only (the known, heavy ones) as long as ``total`` counts all rows: every bound
holds for what is known, and other rows only add to loads.
"""

from __future__ import annotations

import heapq
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from skewless.documents.decision import BoundName, Certificate
from skewless.errors import PlanError

#: A gap of a fraction of a percent comes from integer remainders and from hashing, not from a straggler.
NEAR = 0.02
#: Relative error that sums of floating-point rows are allowed before they are called wrong.
ROUNDING = 1e-6
#: What is said where no task's load is known, and so nothing of balance.
NOT_MEASURED = "not measured: the rows of each task were not counted"

Floats = npt.NDArray[np.float64]


def makespan(loads: Floats, parallelism: int) -> float:
    """When the last task is done, if ``parallelism`` tasks run side by side and are started in their order.

    Spark starts the tasks of a stage by partition, each as soon as another task has ended (list scheduling, Graham
    1966). If no task waits it is the largest of the loads, which are rows or seconds.
    """
    if len(loads) <= parallelism:
        return float(loads.max(initial=0.0))
    ends = loads[:parallelism].tolist()
    heapq.heapify(ends)
    for load in loads[parallelism:].tolist():
        heapq.heapreplace(ends, ends[0] + load)
    return float(max(ends))


class Keys(NamedTuple):
    """The keys that are placed.

    Attributes:
        heaviest: key text and rows of the heaviest key, if one is known.
        weights: rows of the known heavy keys, ``heaviest`` among them, in any order, shape ``(keys,)``.
    """

    total: float
    heaviest: tuple[str, float] | None
    splittable: bool
    weights: npt.ArrayLike | None = None

    def known(self) -> Floats:
        """The rows of the known keys, heaviest first; a ``PlanError`` if they contradict the heaviest or the total."""
        known = heaviest_first([] if self.weights is None else self.weights, self.total)[0]
        if self.weights is None:
            return np.array([self.heaviest[1]]) if self.heaviest else known
        if self.heaviest and not (known.size and abs(known[0] - self.heaviest[1]) <= ROUNDING * self.heaviest[1]):
            required = f"weights whose largest is {self.heaviest[1]:g}, as the heaviest key"
            raise PlanError("certificate", required, f"{known[:1].tolist()}")
        return known


def certify(
    keys: Keys, tasks: int, makespan: float | None, *, speeds: npt.ArrayLike | None = None,
    states: int | None = None, predicted: bool = False,
) -> Certificate:  # fmt: skip
    """Hold a largest load to the best of the bounds that hold and say what follows.

    Args:
        tasks: tasks that run side by side, at least 1, however many a plan has: a decision and a finished run are
            both held to all of them being busy all the time.
        makespan: the largest load of a task, in rows; with speeds the largest rows / speed; None if it was not
            measured: then nothing is claimed.
        speeds: of the tasks, shape ``(tasks,)``.
        states: (known key, task) pairs of the plan.
        predicted: whether the makespan is a forecast's, which may be too low, and not a measured one.

    Raises:
        PlanError: the numbers cannot belong to one plan: weights above the total or below ``heaviest``,
            another number of speeds than tasks, or a measured makespan below the bound, which no plan can have.
    """
    known, total, splittable = keys.known(), keys.total, keys.splittable
    key, rows = keys.heaviest or (None, float(known[0]) if known.size else 0.0)
    fastest = None if speeds is None else fastest_first(speeds)
    if fastest is not None and len(fastest) != tasks:
        raise PlanError("certificate", f"speeds of {tasks} tasks", f"{len(fastest)} speeds")
    bounds = known_bounds(known, total, tasks, splittable, fastest)
    best = best_bound(bounds)
    lower = upper = None
    if keys.weights is not None and makespan is not None:
        fast, all_speeds = (1.0, float(tasks)) if fastest is None else (float(fastest[0]), float(fastest.sum()))
        try:
            lower = needed_states(known, float(known.sum()), makespan * fast, makespan * all_speeds, splittable)
        except PlanError:
            lower = None  # a predicted makespan may be a few rows short of what its keys come to
        held = int(np.count_nonzero(known))
        # Any best plan can be relieved of cycles (a key that meets another twice) without moving a load,
        # within the tasks it uses: then it is a forest, of at most D + W - 1 pairs.
        upper = states_upper(held, tasks) if splittable else held
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
        conclusion=_conclusion(bounds, best, tasks, makespan, key, rows / total if total else 0.0),
        bound_name=best.name,
        states=states,
        states_lower=lower,
        states_upper=upper,
    )


class Bound(NamedTuple):
    """A bound, its name, and for several keys how many of the heaviest it is about."""

    rows: float
    name: BoundName
    keys: int = 0


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
    bounds: list[Bound], best: Bound, tasks: int, makespan: float | None, heaviest: str | None, part: float
) -> str:
    fairest, alone = bounds[0].rows, next((one.rows for one in bounds if one.name == "heaviest key"), 0.0)
    if not fairest:
        return "nothing is queued"
    if makespan is None:
        return NOT_MEASURED
    if alone > fairest:
        who = "the heaviest key" if heaviest is None else f"key {heaviest[:80]!r}"
        # More tasks do separate heavy keys that meet in one, but never bring the load below the one key.
        floor = f" below {alone:,.0f} rows" if best.name == "several heavy keys" else ""
        whole = f"{who} alone is {part:.0%} of the rows and its aggregates may not be split"
        return f"more tasks will not help{floor}: {whole}"
    if makespan / fairest - 1.0 <= NEAR:
        return "balanced: the largest task is at the fair share"
    gap = makespan / best.rows - 1.0
    if gap <= NEAR:
        return (
            f"no plan is clearly better: the {best.keys} heaviest keys, which may not be split, "
            f"cannot be spread more thinly over {tasks} tasks"
        )
    return f"the largest task is {gap:.0%} above the best possible"


def states_upper(keys: int, tasks: int) -> int:
    """Partial states that the wrap-around rule never exceeds: ``D + W - 1`` for D keys on W tasks; 0 without keys.

    McNaughton (1959, Management Science 6, 1-12): lay the keys end to end and cut at every multiple of
    ``total / W``. W tasks have W - 1 cuts between them, and each makes one more piece of one key.
    """
    return keys + tasks - 1 if keys else 0


def best_bound(bounds: list[Bound]) -> Bound:
    """The largest; the first of those that only rounding tells apart."""
    most = max(one.rows for one in bounds)
    return next(one for one in bounds if one.rows >= most * (1.0 - 1e-12))


def known_bounds(ordered: Floats, total: float, tasks: int, splittable: bool, fastest: Floats | None) -> list[Bound]:
    """All bounds of the largest load that hold, the fair share first; in O(n log n), n keys and tasks.

    With ``n(j)`` the j-th heaviest key, W tasks, and ``s(j)`` the j-th fastest speed:

    - ``total / (s(1) + .. + s(W))``: some task has at least the mean (pigeonhole principle). It is attained if keys
      may be split at will (McNaughton 1959). All others are for whole keys.
    - ``(n(1) + .. + n(k)) / (s(1) + .. + s(min(k, W)))`` for each k: the k heaviest keys occupy at most k tasks. At
      equal speeds k = 1 says it all. (Horvath, Lam and Sethi 1977, J. ACM 24, 32-43, whose bound preemption attains.)
    - for equal speeds, for each q >= 1, the sum of ``n(qW - q + 1) .. n(qW + 1)``. Proof: of the ``qW + 1`` heaviest
      keys some task takes at least ``q + 1``, and no ``q + 1`` of them weigh less than the lightest ``q + 1``. (It is
      at least ``(q + 1) n(qW + 1)``; with q = 1 it is the bound ``p(m) + p(m+1)`` of Dell'Amico and Martello 1995,
      ORSA J. Computing 7, 191-200.)
    - for other speeds, for each k, ``n(k) t(k)``, where ``t(k)`` is the k-th smallest of all ``j / s(i)``, j = 1, 2,
      ..: by the time T task i ends at most ``floor(T s(i) / n(k))`` of the k heaviest keys, each of which weighs at
      least ``n(k)``, and these numbers add up to k no sooner than at ``T = n(k) t(k)``.

    Known keys and speeds are given heaviest and fastest first; ``fastest`` is None where all tasks are alike.

    Raises:
        PlanError: no task, or a total that is negative or not finite.
    """
    if tasks < 1 or not 0 <= total < np.inf:
        raise PlanError("bounds", "at least one task and a finite total of 0 or more", f"{tasks} and {total:g}")
    reach = np.arange(1, tasks + 1, dtype=np.float64) if fastest is None else np.cumsum(fastest)
    found = [Bound(total / float(reach[-1]), "fair share")]
    if splittable or not ordered.size:
        return found
    found.append(Bound(float(ordered[0] / reach[0]), "heaviest key"))
    if fastest is None:
        return [*found, _crowded(ordered, tasks)]
    return [*found, _top_keys(ordered, reach), _crowded_at_speeds(ordered, fastest)]


def _crowded(ordered: Floats, tasks: int) -> Bound:
    """Of the ``qW + 1`` heaviest keys a task takes ``q + 1``: the lightest such, for the best q."""
    together = np.arange(1, (len(ordered) - 1) // tasks + 1)
    if not together.size:
        return Bound(0.0, "several heavy keys")
    heaviest = np.append(0.0, np.cumsum(ordered))
    last = together * tasks + 1
    sums = heaviest[last] - heaviest[last - together - 1]
    most = int(np.argmax(sums))
    return Bound(float(sums[most]), "several heavy keys", int(last[most]))


def _top_keys(ordered: Floats, reach: Floats) -> Bound:
    """The k heaviest keys on the k fastest tasks, for the best k; ``reach`` has the sums of the fastest speeds."""
    count = min(len(ordered), len(reach))
    ends = np.cumsum(ordered[:count]) / reach[:count]
    most = int(np.argmax(ends))
    return Bound(float(ends[most]), "several heavy keys", most + 1)


def _crowded_at_speeds(ordered: Floats, fastest: Floats) -> Bound:
    keys = len(ordered)
    # At T = (keys + W) / sum(speeds) the tasks end at least T * sum(speeds) - W = keys keys of weight 1.
    turns = (fastest * ((keys + len(fastest)) / fastest.sum())).astype(np.int64) + 1
    first = np.repeat(np.cumsum(turns) - turns, turns)
    ends = (np.arange(len(first)) - first + 1) / np.repeat(fastest, turns)
    bounds = ordered * np.sort(ends)[:keys]
    most = int(np.argmax(bounds))
    return Bound(float(bounds[most]), "several heavy keys", most + 1)


def needed_states(ordered: Floats, total: float, level: float, room: float, splittable: bool) -> int:
    """Partial states, (key, task) pairs, that every plan has at least whose tasks hold at most ``level`` rows each.

    A key of w rows needs ``ceil(w / level)`` tasks; if keys may not be split, one, and so as many states as keys.
    Keys without rows need none. All tasks together have ``room`` for so many rows.

    Raises:
        PlanError: the tasks cannot hold the keys, or a key is above the level and may not be split.
    """
    held = ordered[ordered > 0]
    if not held.size:
        return 0
    if total > room * (1.0 + ROUNDING):
        raise PlanError("states", f"tasks that hold {total:g} rows", f"a level of {level:g}, {room:g} in all")
    if splittable:
        # A quotient that rounding put above a whole number needs no further piece.
        return int(np.ceil(held / level * (1.0 - ROUNDING)).sum())
    if held[0] > level * (1.0 + ROUNDING):
        raise PlanError("states", f"a level of {held[0]:g} or more, as a key may not be split", f"{level:g}")
    return len(held)


def heaviest_first(weights: npt.ArrayLike, total: float | None) -> tuple[Floats, float]:
    """The weights in descending order, and the total of all rows."""
    found = np.asarray(weights, dtype=np.float64)
    if found.ndim != 1 or not np.isfinite(found).all() or (found < 0).any():
        raise PlanError("bounds", "a list of finite weights, none below 0", repr(weights)[:120])
    ordered: Floats = np.sort(found)[::-1]
    known = float(ordered.sum())
    if total is not None and known > total * (1.0 + ROUNDING):
        raise PlanError("bounds", f"a total of at least {known:g}, the sum of the weights", f"{total:g}")
    return ordered, known if total is None else total


def fastest_first(speeds: npt.ArrayLike) -> Floats:
    """The speeds in descending order."""
    found = np.asarray(speeds, dtype=np.float64)
    if found.ndim != 1 or not found.size or not np.isfinite(found).all() or (found <= 0).any():
        raise PlanError("bounds", "a list of finite speeds above 0", repr(speeds)[:120])
    ordered: Floats = np.sort(found)[::-1]
    return ordered
