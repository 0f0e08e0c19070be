"""Greedy-d: each key has a few choices (tasks that may get its rows), and rows go to the least loaded of them.

What ``partial_key``, ``d_choices`` and ``w_choices`` have in common. The published methods send one
row after the other to the least loaded choice of its key (PKG, section 3; Azar et al. 1999). A
plan is made once for a stage, from counts. So whole counts are placed at once, heaviest key first: the rows of a key
fill its choices up to one level, on top of the load they have already.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from functools import cache

import mmh3
import numpy as np
import numpy.typing as npt

from skewless.planner.placement.pin_or_split import SLIVER
from skewless.planner.placement.placement import Indices, Placement, Rows

#: Seed of the seeds of the choices' hashes; neither the ring's nor that of the buckets.
CHOICE_SEED = 0xC401CE
#: The head are the keys with at least 1 / (HEAD_PARTS * tasks) of the rows (Nasir et al. 2016).
HEAD_PARTS = 5
#: By which part of all rows the tasks of some keys together may be overloaded when the number of choices is chosen,
#: however many tasks they are (Nasir et al. 2016).
EPSILON = 1e-4


def choices_of(key: str, tasks: int, count: int) -> Sequence[int]:
    """So many choices of a key: distinct tasks, the same in every stage, independent of the ring; at most all tasks.

    The first steps of a shuffle (Fisher and Yates 1938) of all tasks, with one independent hash of
    the key for each step. So none comes twice, and a further choice changes none of the others.
    """
    if count >= tasks:
        return range(tasks)
    raw = key.encode()
    moved: dict[int, int] = {}
    found = []
    for step in range(count):
        drawn = step + mmh3.hash(raw, _seed(step), signed=False) % (tasks - step)
        found.append(moved.get(drawn, drawn))
        moved[drawn] = moved.get(step, step)
    return found


def pour_over_choices(keys: Sequence[str], rows: Rows, base: Rows, counts: Indices, *, splittable: bool) -> Placement:
    """Pour each key, heaviest first, over its choices up to the lowest level that they have in common.

    A choice above that level gets nothing, nor does one that would get a sliver
    (``pin_or_split.SLIVER`` of the fair share): it is not worth a partial state. Equal levels are taken in the order of
    the choices. Unless it is splittable, a key goes whole to the least loaded of its choices. Each key has its ``rows``
    and a number of choices (``counts``); each task has ``base`` rows already.
    """
    levels: list[float] = base.tolist()
    sliver = SLIVER * (float(base.sum()) + float(rows.sum())) / len(levels) if splittable else math.inf
    key: list[int] = []
    task: list[int] = []
    poured: list[float] = []
    offered, amounts = counts.tolist(), rows.tolist()
    for number in np.argsort(-rows, kind="stable").tolist():
        mine = choices_of(keys[number], len(levels), offered[number])
        for one, amount in _poured(levels, mine, amounts[number], sliver):
            levels[one] += amount
            key.append(number)
            task.append(one)
            poured.append(amount)
    return Placement.of_rows(
        len(keys), np.array(key, dtype=np.int64), np.array(task, dtype=np.int64), np.array(poured, dtype=np.float64)
    )


def heavy(shares: Rows, tasks: int) -> npt.NDArray[np.bool_]:
    """Which keys are the head: those with a share of at least ``theta = 1 / (5 tasks)``, shape ``(keys,)``.

    Nasir et al. 2016, theta between 1/(5n) and 2/n: lighter keys are balanced by two choices.
    """
    found: npt.NDArray[np.bool_] = shares >= 1.0 / (HEAD_PARTS * tasks)
    return found


def pour_head(
    keys: Sequence[str], rows: Rows, base: Rows, choices: Callable[[Rows, int], int], *, splittable: bool
) -> tuple[str, Placement] | None:
    """Pour head keys over as many choices each as ``choices`` says, and other keys over two; see ``pour_over_choices``.

    ``choices`` is asked with the shares of the head keys, descending, and the number of tasks.

    Returns:
        The placement, after a sentence about it; None if there is nothing to choose.
    """
    tasks, total = len(base), float(base.sum() + rows.sum())
    if tasks == 1 or not keys or not total:
        return None
    head = heavy(rows / total, tasks)
    wanted = choices(-np.sort(-rows[head] / total), tasks)
    placed = pour_over_choices(keys, rows, base, np.where(head, wanted, 2), splittable=splittable)
    words = f"place {head.sum():,} heavy keys, {wanted} choices each, and {(~head).sum():,} others, two each"
    return f"{words}: {placement_in_words(placed, keys)}", placed


def enough_choices(head: Rows, tasks: int) -> int:
    """The fewest choices that a head key needs, so that no part of the head overloads its tasks; 2 at least.

    Nasir et al. 2016: the least d >= 2 such that for each h, for the h heaviest keys,
    ``sum(i <= h) p_i + (b/n)^d sum(h < i <= head) p_i + (b/n)^2 sum(i > head) p_i <= b/n + eps``
    with ``b = n - n ((n-1)/n)^(h d)``, the expected number of different tasks among their h d choices. ``head`` has the
    shares p_i of the head keys, descending. Where no smaller number is enough it is ``tasks``, n.
    """
    if not len(head) or tasks <= 2:
        return min(2, tasks)
    upto, sizes = np.cumsum(head), np.arange(1, len(head) + 1)
    rest, tail = upto[-1] - upto, max(0.0, 1.0 - float(upto[-1]))
    # The first sum alone must fit, b/n >= sum - eps: that bounds d from below for each h.
    needed = np.log1p(EPSILON - upto) / (sizes * math.log1p(-1.0 / tasks))
    choices = max(2, math.ceil(float(needed.max()) - 1e-9))
    while choices < tasks:
        part = -np.expm1(sizes * choices * math.log1p(-1.0 / tasks))  # b / n
        if bool((upto + part**choices * rest + part**2 * tail <= part + EPSILON).all()):
            return choices
        choices += 1
    return tasks


def placement_in_words(placement: Placement, keys: Sequence[str]) -> str:
    """How many keys are whole and how many are split, the heaviest of these by name."""
    split = placement.split.tolist()
    words = f"{placement.keys - len(split):,} whole"
    if not split:
        return words
    named = ", ".join(repr(keys[number][:20]) for number in split[:3])
    return f"{words}, {len(split):,} split ({named}{', ...' if len(split) > 3 else ''})"


@cache
def _seed(step: int) -> int:
    """The seed of the hash of a step: a constant, another one for each."""
    return mmh3.hash(struct.pack("<i", step), CHOICE_SEED, signed=False)


def _poured(levels: Sequence[float], mine: Sequence[int], rows: float, sliver: float) -> list[tuple[int, float]]:
    """Tasks and rows of the pieces of one key; each but the only one is at least half a sliver."""
    lowest = sorted(mine, key=levels.__getitem__)
    poured = rows
    for count, task in enumerate(lowest, 1):
        poured += levels[task]
        level = poured / count
        if count == len(lowest) or level <= levels[lowest[count]] + sliver:
            return [(one, level - levels[one]) for one in lowest[:count]]
    return []
