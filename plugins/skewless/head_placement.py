"""Placing head keys on tasks: pinned whole, or split by fractional shares."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence

import numpy as np

from skewless.forecast import Rows
from skewless.routing_plan import WHOLE_SHARE, Shares

#: A piece smaller than this part of the water level is not worth a partial state; a task may
#: end up to twice that much off the level instead. Relative to the level and not to the key:
#: a key that needs a thousand tasks has a thousand small pieces, all of them worth it.
SLIVER = 1 / 512


def water_level(base: Rows, rows: float) -> float:
    """The lowest level to which ``rows`` can be poured on top of ``base``.

    Args:
        base: rows each task has already, shape ``(tasks,)``.
        rows: rows to pour.

    Returns:
        The least L with ``sum(max(0, L - base)) >= rows``; tasks above it take nothing.
    """
    floors = np.sort(base)
    # If the n lowest tasks are poured full, their common level is (their base + rows) / n.
    levels = (np.cumsum(floors) + rows) / np.arange(1, len(floors) + 1)
    above = np.append(floors[1:], np.inf)
    return float(levels[int(np.argmax(levels <= above))])


def pour(keys: Sequence[str], rows: Rows, base: Rows) -> dict[str, Shares]:
    """Fill the tasks one after the other up to the water level, heaviest key first.

    The wrap-around rule of McNaughton (1959): only the key at a task's brim is split, so there
    are at most ``len(keys) + tasks - 1`` pieces.

    Args:
        keys: head keys, heaviest first.
        rows: their rows, shape ``(len(keys),)``.
        base: rows each task has already, shape ``(tasks,)``.
    """
    level = water_level(base, float(rows.sum()))
    return _filled(keys, rows, np.maximum(level - base, 0.0), level * SLIVER, {})


def pour_in_place(keys: Sequence[str], rows: Rows, base: Rows, old: Mapping[str, Shares]) -> dict[str, Shares]:
    """Like ``pour``, but rows stay where they are as long as their task is below the level.

    Moves little, at the price of up to ``tasks - 1`` more pieces than the plan before.

    Args:
        keys: head keys, heaviest first.
        rows: their rows, shape ``(len(keys),)``.
        base: rows each task has already, shape ``(tasks,)``.
        old: where each key goes now.
    """
    level = water_level(base, float(rows.sum()))
    sliver = level * SLIVER
    room = np.maximum(level - base, 0.0).tolist()
    kept: dict[str, dict[int, float]] = {}
    for key, weight in zip(keys, rows.tolist(), strict=True):
        mine: dict[int, float] = {}
        for task, share in old[key]:
            piece = weight * share / WHOLE_SHARE
            # A whole piece may pass the level by a sliver; a part of one must be more than that.
            stay = piece if piece <= room[task] + sliver and room[task] > 0 else room[task]
            if piece and (stay == piece or stay > sliver):
                mine[task] = stay
                room[task] -= stay
        kept[key] = mine
    return _filled(keys, rows, np.array(room), sliver, kept)


def place_whole(keys: Sequence[str], rows: Rows, base: Rows) -> dict[str, Shares]:
    """Give each key, heaviest first, to the task with the least load (LPT, Graham 1969).

    For aggregates whose keys may not be split.
    """
    loads = [(load, task) for task, load in enumerate(base.tolist())]
    heapq.heapify(loads)
    placed: dict[str, Shares] = {}
    for key, weight in zip(keys, rows.tolist(), strict=True):
        load, task = loads[0]
        heapq.heapreplace(loads, (load + weight, task))
        placed[key] = ((task, WHOLE_SHARE),)
    return placed


def _filled(
    keys: Sequence[str], rows: Rows, room: Rows, sliver: float, kept: dict[str, dict[int, float]]
) -> dict[str, Shares]:
    """Pour what is not kept into the room that is left, roomiest task first.

    The pieces of ``kept`` are completed in place. What a task is left short of or filled too much
    is carried over to the next, so that slivers never add up on the last task.
    """
    order = np.lexsort((np.arange(len(room)), -room)).tolist()
    rooms = room[order].tolist()
    last = len(order) - 1
    at, left = 0, rooms[0]
    placed = {}
    for key, weight in zip(keys, rows.tolist(), strict=True):
        pieces = kept.get(key) or {}
        rest = weight - sum(pieces.values())
        while rest > sliver or not pieces:
            fits = rest <= left + sliver
            if at < last and (left <= 0 or (left <= sliver and not fits)):
                at += 1
                left += rooms[at]
                continue
            piece = rest if fits or at == last else left
            pieces[order[at]] = pieces.get(order[at], 0.0) + piece
            rest -= piece
            left -= piece
        placed[key] = as_shares(pieces)
    return placed


def as_shares(pieces: Mapping[int, float]) -> Shares:
    """Round rows per task to whole weights that add up; the largest remainders get the rest.

    Weights are multiples of ``WHOLE_SHARE / 2**n`` with ``2**n >= 256`` per piece (as long as
    there are that many), so that Spark can look a share up in a small table of cells.
    """
    if len(pieces) == 1:
        return ((next(iter(pieces)), WHOLE_SHARE),)
    cells = min(WHOLE_SHARE, 1 << (256 * len(pieces) - 1).bit_length())
    total = sum(pieces.values())
    exact = {task: piece / total * cells for task, piece in pieces.items()}
    whole = {task: int(cell) for task, cell in exact.items()}
    spare = cells - sum(whole.values())
    for task in sorted(exact, key=lambda task: (whole[task] - exact[task], task))[:spare]:
        whole[task] += 1
    step = WHOLE_SHARE // cells
    return tuple((task, whole[task] * step) for task in sorted(whole) if whole[task])
