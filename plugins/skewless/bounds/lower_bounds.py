"""What no plan can beat.

Placing keys on tasks is the makespan problem of parallel machines: keys are jobs, tasks are
machines, and a key that may be split is a job that may be preempted and run in parallel with
itself. All bounds here are additive in their unit: rows, or rows times a cost per row
(``costs_of``). With speeds, a load is divided by its task's speed, and the unit is that of a
task of speed 1.

The weights given may be some of the keys only (the known, heavy ones) as long as ``total``
counts all rows: every bound holds for what is known, and other rows only add to loads.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from skewless.documents.certificate import BoundName
from skewless.errors import PlanError

#: Which of the bounds is the best: all rows over all tasks; the heaviest key; several heavy keys together.

#: Relative error that sums of floating-point rows are allowed before they are called wrong.
ROUNDING = 1e-6

Floats = npt.NDArray[np.float64]


class Bound(NamedTuple):
    """A bound, its name, and for several keys how many of the heaviest it is about."""

    rows: float
    name: BoundName
    keys: int = 0


def fair(total: float, tasks: int) -> float:
    """``total / tasks``: some task has at least the mean (pigeonhole principle).

    Attained whenever keys may be split at will (McNaughton 1959).

    Args:
        total: rows to be placed, not negative.
        tasks: tasks to place them on, at least 1.

    Raises:
        PlanError: the total is negative or no number, or there is no task.
    """
    _refuse_bad(total, tasks)
    return total / tasks


def costs_of(rows: npt.ArrayLike, cost_per_row: npt.ArrayLike) -> Floats:
    """Rows times cost per row, for use as the weights of any bound.

    Args:
        rows: rows of each key, shape ``(keys,)``.
        cost_per_row: what a row of each key costs, shape ``(keys,)``, in any one unit, such as
            seconds, or rows of an ordinary key.

    Returns:
        The cost of each key, shape ``(keys,)``, in that unit.

    Raises:
        PlanError: the shapes differ, or a number is negative or not finite.
    """
    counts, prices = _refuse_bad_weights(rows), _refuse_bad_weights(cost_per_row)
    if counts.shape != prices.shape:
        raise PlanError("bounds", f"a cost for each of {len(counts)} keys", f"{len(prices)} costs")
    return counts * prices


def whole_bound(weights: npt.ArrayLike, tasks: int, *, total: float | None = None) -> float:
    """The largest load that every placement of whole keys has at least.

    The largest of three, with ``n(j)`` the j-th heaviest key and W the tasks:

    - ``total / W``;
    - ``n(1)``, which some task takes whole;
    - for each q >= 1 the sum of ``n(qW - q + 1) .. n(qW + 1)``. Proof: of the ``qW + 1`` heaviest
      keys some task takes at least ``q + 1``, and no ``q + 1`` of them weigh less than the
      lightest ``q + 1``. (It is at least ``(q + 1) n(qW + 1)``; with q = 1 it is the bound
      ``p(m) + p(m+1)`` of Dell'Amico and Martello 1995, ORSA J. Computing 7, 191-200.)

    Args:
        weights: rows of the known keys in any order, shape ``(keys,)``; may be empty.
        tasks: at least 1.
        total: rows of all keys, known or not; the sum of the weights if not given.

    Returns:
        The bound in the unit of the weights. Takes O(keys log keys).

    Raises:
        PlanError: no task, a weight that is negative or not finite, or a total below their sum.
    """
    return best_bound(known_bounds(*heaviest_first(weights, total), tasks, 1, None)).rows


def split_bound(weights: npt.ArrayLike, tasks: int, ways: int, *, total: float | None = None) -> float:
    """The largest load that every placement has at least if a key may go to ``ways`` tasks at most.

    ``max(total / W, n(1) / d)`` with ``d = min(ways, W)``: one of the at most d pieces of the heaviest
    key has the mean at least. ``whole_bound`` for ``ways=1``.

    The pigeonhole of ``whole_bound`` holds here too and is left out, since for ``d >= 2`` it says
    nothing new. It holds: the largest piece of each key is at least its d-th part, and of the
    largest pieces of ``qW + 1`` keys some task takes ``q + 1``. It says nothing new: the lightest
    ``q + 1`` of ``qW + 1`` keys weigh at most ``total (q + 1) / (qW + 1)``, and a d-th part of that
    is at most ``total / W``, because ``W (q + 1) <= 2qW <= d (qW + 1)``.

    Not the best there is: keys that share tasks form a tree, so e keys that hang together cover at
    most ``e (d - 1) + 1`` tasks; three equal keys on five tasks, two ways each, need 2/3 of a
    key's rows where this bound says 3/5.

    Args:
        weights: rows of the known keys in any order, shape ``(keys,)``; may be empty.
        tasks: at least 1.
        ways: tasks that a key may be split over, at least 1.
        total: rows of all keys, known or not; the sum of the weights if not given.

    Raises:
        PlanError: as ``whole_bound``, or fewer than one way.
    """
    return best_bound(known_bounds(*heaviest_first(weights, total), tasks, ways, None)).rows


def whole_bound_at_speeds(weights: npt.ArrayLike, speeds: npt.ArrayLike, *, total: float | None = None) -> float:
    """``whole_bound`` for tasks of different speeds: the latest end, no matter the placement.

    The largest of, with ``s(j)`` the j-th fastest speed:

    - ``total / (s(1) + .. + s(W))``;
    - for each k < W ``(n(1) + .. + n(k)) / (s(1) + .. + s(k))``: the k heaviest keys occupy at most k
      tasks, which are no faster than the k fastest; k = 1 is the heaviest key on the fastest task.
      (The bound of Horvath, Lam and Sethi 1977, J. ACM 24, 32-43, which preemption attains.) For
      whole keys and k > 1 it is only attained together with k = 1.
    - for each k ``n(k) t(k)``, where ``t(k)`` is the k-th smallest of all ``j / s(i)``, j = 1, 2, ..:
      by the time T task i ends at most ``floor(T s(i) / n(k))`` of the k heaviest keys, each of
      which weighs at least ``n(k)``, and these numbers add up to k no sooner than at
      ``T = n(k) t(k)``. With equal speeds it is ``(q + 1) n(qW + 1)``.

    Args:
        weights: cost of the known keys in any order, shape ``(keys,)``; may be empty.
        speeds: cost per unit of time that each task does, shape ``(tasks,)``, positive.
        total: cost of all keys, known or not; the sum of the weights if not given.

    Returns:
        The bound in units of time (of rows on a task of speed 1). Takes O(n log n), n keys and tasks.

    Raises:
        PlanError: as ``whole_bound``, or no speeds, or one that is not positive and finite.
    """
    fastest = fastest_first(speeds)
    return best_bound(known_bounds(*heaviest_first(weights, total), len(fastest), 1, fastest)).rows


def split_bound_at_speeds(
    weights: npt.ArrayLike, speeds: npt.ArrayLike, ways: int, *, total: float | None = None
) -> float:
    """``split_bound`` for tasks of different speeds.

    The larger of ``total / (s(1) + .. + s(W))`` and, for each k >= 1,
    ``(n(1) + .. + n(k)) / (s(1) + .. + s(min(kd, W)))``, since k keys occupy at most kd tasks.
    ``whole_bound_at_speeds`` for ``ways=1``.

    Args:
        weights: cost of the known keys in any order, shape ``(keys,)``; may be empty.
        speeds: cost per unit of time that each task does, shape ``(tasks,)``, positive.
        ways: tasks that a key may be split over, at least 1.
        total: cost of all keys, known or not; the sum of the weights if not given.

    Raises:
        PlanError: as ``whole_bound_at_speeds``, or fewer than one way.
    """
    fastest = fastest_first(speeds)
    return best_bound(known_bounds(*heaviest_first(weights, total), len(fastest), ways, fastest)).rows


def states_lower(weights: npt.ArrayLike, tasks: int, level: float, splittable: bool) -> int:
    """Partial states, (key, task) pairs, that every plan has at least whose tasks hold ``level`` at most.

    A key of w rows needs ``ceil(w / level)`` tasks; where keys may not be split, one, and so as many
    states as keys. Keys without rows need none.

    Args:
        weights: rows of the keys, shape ``(keys,)``.
        tasks: at least 1.
        level: rows that a task may hold, inclusive.
        splittable: whether a key may be split.

    Raises:
        PlanError: ``tasks`` tasks of that level cannot hold the keys, or a key is above the level and
            may not be split; or as ``whole_bound``.
    """
    ordered, total = heaviest_first(weights, None)
    _refuse_bad(total, tasks)
    return needed_states(ordered, total, level, level * tasks, splittable)


def states_upper(keys: int, tasks: int) -> int:
    """Partial states that the wrap-around rule never exceeds: ``D + W - 1``; 0 without keys.

    McNaughton (1959, Management Science 6, 1-12): lay the keys end to end and cut at every multiple of
    ``total / W``. W tasks have W - 1 cuts between them, and each makes one more piece of one key.

    Args:
        keys: D, the keys that have rows.
        tasks: W, at least 1.

    Raises:
        PlanError: no task, or a negative number of keys.
    """
    _refuse_bad(float(keys), tasks)
    return keys + tasks - 1 if keys else 0


def best_bound(bounds: list[Bound]) -> Bound:
    """The largest; the first of those that only rounding tells apart."""
    most = max(one.rows for one in bounds)
    return next(one for one in bounds if one.rows >= most * (1.0 - 1e-12))


def known_bounds(ordered: Floats, total: float, tasks: int, ways: int | None, fastest: Floats | None) -> list[Bound]:
    """All bounds that hold, the fair share first.

    Args:
        ordered: rows of the known keys, heaviest first.
        total: rows of all keys.
        tasks: at least 1.
        ways: tasks that a key may be split over; None for any number.
        fastest: speeds of the tasks, fastest first; None where all are alike.
    """
    _refuse_bad(total, tasks)
    if ways is not None and ways < 1:
        raise PlanError("bounds", "at least one task for a key", f"{ways} ways")
    reach = np.arange(1, tasks + 1, dtype=np.float64) if fastest is None else np.cumsum(fastest)
    found = [Bound(total / float(reach[-1]), "fair share")]
    if ways is None or not ordered.size:
        return found
    found.append(Bound(float(ordered[0] / reach[min(ways, tasks) - 1]), "heaviest key"))
    if fastest is not None:
        found.append(_top_keys(ordered, reach, ways))
    if ways == 1:
        found.append(_crowded(ordered, tasks) if fastest is None else _crowded_at_speeds(ordered, fastest))
    return found


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


def _top_keys(ordered: Floats, reach: Floats, ways: int) -> Bound:
    """The k heaviest keys on the kd fastest tasks, for the best k; ``reach`` has the sums of the fastest speeds."""
    count = min(len(ordered), -(-len(reach) // ways))
    widest = np.minimum(np.arange(1, count + 1) * ways, len(reach)) - 1
    ends = np.cumsum(ordered[:count]) / reach[widest]
    most = int(np.argmax(ends))
    return Bound(float(ends[most]), "several heavy keys", most + 1)


def _crowded_at_speeds(ordered: Floats, fastest: Floats) -> Bound:
    """``n(k) t(k)`` for the best k, see ``whole_bound_at_speeds``."""
    keys = len(ordered)
    # At T = (keys + W) / sum(speeds) the tasks end at least T * sum(speeds) - W = keys keys of weight 1.
    turns = (fastest * ((keys + len(fastest)) / fastest.sum())).astype(np.int64) + 1
    first = np.repeat(np.cumsum(turns) - turns, turns)
    ends = (np.arange(len(first)) - first + 1) / np.repeat(fastest, turns)
    bounds = ordered * np.sort(ends)[:keys]
    most = int(np.argmax(bounds))
    return Bound(float(bounds[most]), "several heavy keys", most + 1)


def needed_states(ordered: Floats, total: float, level: float, room: float, splittable: bool) -> int:
    """See ``states_lower``; ``level`` is what the roomiest task holds, ``room`` what all hold together."""
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
    ordered: Floats = np.sort(_refuse_bad_weights(weights))[::-1]
    known = float(ordered.sum())
    if total is not None and known > total * (1.0 + ROUNDING):
        raise PlanError("bounds", f"a total of at least {known:g}, the sum of the weights", f"{total:g}")
    return ordered, known if total is None else total


def _refuse_bad_weights(weights: npt.ArrayLike) -> Floats:
    found = np.asarray(weights, dtype=np.float64)
    if found.ndim != 1 or not np.isfinite(found).all() or (found < 0).any():
        raise PlanError("bounds", "a list of finite weights, none below 0", repr(weights)[:120])
    return found


def fastest_first(speeds: npt.ArrayLike) -> Floats:
    """The speeds in descending order."""
    found = np.asarray(speeds, dtype=np.float64)
    if found.ndim != 1 or not found.size or not np.isfinite(found).all() or (found <= 0).any():
        raise PlanError("bounds", "a list of finite speeds above 0", repr(speeds)[:120])
    ordered: Floats = np.sort(found)[::-1]
    return ordered


def _refuse_bad(total: float, tasks: int) -> None:
    if tasks < 1 or not 0 <= total < np.inf:
        raise PlanError("bounds", "at least one task and a finite total of 0 or more", f"{tasks} and {total:g}")
