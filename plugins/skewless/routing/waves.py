"""Cutting the input into waves."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

#: ``2**32`` times the golden section, rounded to an odd number.
GOLDEN_SECTION = 2_654_435_769


def cut_waves(rows: Sequence[int], weights: Sequence[float], *, in_order: bool = False) -> tuple[tuple[int, ...], ...]:
    """Assign each source partition, by its rows, to one wave, so that waves have about the given weights.

    The partitions are not taken in the order of the listing: the first, small wave should be a fair sample of the
    input, but neighbours in a listing are alike, as its order is often that of time. Each next partition lies a golden
    section of the listing further on. So every wave is spread over the whole listing more evenly than by chance (Weyl
    1916), and periods of the listing do not matter. Empty waves are left out, so few partitions give few waves. A
    partition without rows is in no wave. Where rows have to be seen in the order of the input, each wave follows the
    one before in the listing, too (``in_order``).

    Returns:
        For each wave the ascending ordinals of its partitions; every ordinal with rows exactly once.
    """
    filled_units = [ordinal for ordinal, count in enumerate(rows) if count]
    place = {ordinal: number * GOLDEN_SECTION % (1 << 32) for number, ordinal in enumerate(filled_units, start=1)}
    order = filled_units if in_order else sorted(filled_units, key=lambda ordinal: (place[ordinal], ordinal))
    total = sum(rows)
    targets = [reached / sum(weights) * total for reached in accumulate(weights)]
    waves: list[list[int]] = []
    filled = 0
    for target in targets[:-1]:
        wave = _leading(order, rows, target - filled) if in_order else _fitting(order, rows, target - filled)
        waves.append(wave)
        filled += sum(rows[ordinal] for ordinal in wave)
        taken = set(wave)
        order = [ordinal for ordinal in order if ordinal not in taken]
    waves.append(order)
    return tuple(tuple(sorted(wave)) for wave in waves if wave)


def _fitting(order: Sequence[int], rows: Sequence[int], room: float) -> list[int]:
    """The next partitions of which more than half fits into the room, as no giant one must; else the smallest one."""
    wave, left = [], room
    for ordinal in order:
        if left <= 0:
            break
        if rows[ordinal] / 2 < left:
            wave.append(ordinal)
            left -= rows[ordinal]
    return wave or [min(order, key=lambda ordinal: rows[ordinal])] if order else []


def _leading(order: Sequence[int], rows: Sequence[int], room: float) -> list[int]:
    """The next partitions, without gaps, as long as more than half of each fits into the room; at least one."""
    wave: list[int] = []
    left = room
    for ordinal in order:
        if wave and rows[ordinal] / 2 >= left:
            break
        wave.append(ordinal)
        left -= rows[ordinal]
    return wave
