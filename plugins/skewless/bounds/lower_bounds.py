"""What no plan can beat.

Placing keys on tasks is the makespan problem of parallel machines: keys are jobs, tasks are
machines, and a key that may be split is a job that may be preempted and run in parallel with
itself. All bounds here are additive in their unit: rows, or rows times a cost per row. With
speeds, a load is divided by its task's speed, and the unit is that of a task of speed 1.

The weights given may be some of the keys only (the known, heavy ones) as long as ``total``
counts all rows: every bound holds for what is known, and other rows only add to loads.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from skewless.documents.certificate import BoundName
from skewless.errors import PlanError

#: Relative error that sums of floating-point rows are allowed before they are called wrong.
ROUNDING = 1e-6

Floats = npt.NDArray[np.float64]


class Bound(NamedTuple):
    """A bound, its name, and for several keys how many of the heaviest it is about."""

    rows: float
    name: BoundName
    keys: int = 0


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
    """All bounds of the largest load that hold, the fair share first.

    With ``n(j)`` the j-th heaviest key, W tasks, ``s(j)`` the j-th fastest speed, and d the tasks that a key may be
    split over:

    - ``total / (s(1) + .. + s(W))``: some task has at least the mean (pigeonhole principle). It is attained if keys
      may be split at will (McNaughton 1959).
    - ``(n(1) + .. + n(k)) / (s(1) + .. + s(min(kd, W)))`` for each k: the k heaviest keys occupy at most kd tasks. At
      equal speeds k = 1 says it all: one of the at most d pieces of the heaviest key has the mean at least. (Horvath,
      Lam and Sethi 1977, J. ACM 24, 32-43, whose bound preemption attains.)
    - for whole keys and equal speeds, for each q >= 1, the sum of ``n(qW - q + 1) .. n(qW + 1)``. Proof: of the
      ``qW + 1`` heaviest keys some task takes at least ``q + 1``, and no ``q + 1`` of them weigh less than the
      lightest ``q + 1``. (It is at least ``(q + 1) n(qW + 1)``; with q = 1 it is the bound ``p(m) + p(m+1)`` of
      Dell'Amico and Martello 1995, ORSA J. Computing 7, 191-200.)
    - for whole keys and other speeds, for each k, ``n(k) t(k)``, where ``t(k)`` is the k-th smallest of all
      ``j / s(i)``, j = 1, 2, ..: by the time T task i ends at most ``floor(T s(i) / n(k))`` of the k heaviest keys,
      each of which weighs at least ``n(k)``, and these numbers add up to k no sooner than at ``T = n(k) t(k)``.

    The third says nothing new for ``d >= 2``: the largest piece of each key is at least its d-th part, and of the
    largest pieces of ``qW + 1`` keys some task takes ``q + 1``; but the lightest ``q + 1`` of ``qW + 1`` keys weigh at
    most ``total (q + 1) / (qW + 1)``, and a d-th part of that is at most ``total / W``, because
    ``W (q + 1) <= 2qW <= d (qW + 1)``.

    Not the best there is: keys that share tasks form a tree, so e keys that hang together cover at most
    ``e (d - 1) + 1`` tasks; three equal keys on five tasks, two ways each, need 2/3 of a key's rows where these
    bounds say 3/5.

    Args:
        ordered: rows of the known keys, heaviest first.
        total: rows of all keys, known or not.
        tasks: at least 1.
        ways: tasks that a key may be split over, at least 1; None for any number.
        fastest: speeds of the tasks, fastest first; None where all are alike.

    Returns:
        In the unit of the rows; with speeds, of a task of speed 1. Takes O(n log n), n keys and tasks.

    Raises:
        PlanError: no task, fewer than one way, or a total that is negative or not finite.
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
    """``n(k) t(k)`` for the best k, see ``known_bounds``."""
    keys = len(ordered)
    # At T = (keys + W) / sum(speeds) the tasks end at least T * sum(speeds) - W = keys keys of weight 1.
    turns = (fastest * ((keys + len(fastest)) / fastest.sum())).astype(np.int64) + 1
    first = np.repeat(np.cumsum(turns) - turns, turns)
    ends = (np.arange(len(first)) - first + 1) / np.repeat(fastest, turns)
    bounds = ordered * np.sort(ends)[:keys]
    most = int(np.argmax(bounds))
    return Bound(float(bounds[most]), "several heavy keys", most + 1)


def needed_states(ordered: Floats, total: float, level: float, room: float, splittable: bool) -> int:
    """Partial states, (key, task) pairs, that every plan has at least whose tasks hold at most ``level``.

    A key of w rows needs ``ceil(w / level)`` tasks; if keys may not be split, one, and so as many states as keys.
    Keys without rows need none.

    Args:
        ordered: rows of the keys, heaviest first.
        total: their sum.
        level: rows that the roomiest task may hold, inclusive.
        room: rows that all tasks may hold together.
        splittable: whether a key may be split.

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
