"""Cutting the input into waves."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import mmh3


def cut_waves(names: Sequence[str], rows: Sequence[int], weights: Sequence[float]) -> tuple[tuple[int, ...], ...]:
    """Assign each source partition to one wave, so that waves have about the given weights.

    The partitions are taken in the order of a hash of their names, not as listed: the first,
    small wave should be a fair sample of the input, and neighbours in a listing are alike.
    A wave that would be empty is left out, so few partitions give few waves; a partition
    without rows is in none.

    Args:
        names: a stable name for each partition, for example its path below the input.
        rows: rows of each partition, shape ``(len(names),)``.
        weights: relative sizes of the waves, in order.

    Returns:
        For each wave the ascending ordinals of its partitions; every ordinal with rows exactly once.
    """
    filled_units = [ordinal for ordinal, count in enumerate(rows) if count]
    order = sorted(filled_units, key=lambda n: (mmh3.hash(names[n].encode(), signed=False), names[n]))
    total = sum(rows)
    targets = [reached / sum(weights) * total for reached in accumulate(weights)]
    waves: list[list[int]] = [[] for _ in weights]
    wave, filled = 0, 0
    for ordinal in order:
        # A wave takes at least one partition, and then those that are mostly below its target:
        # a giant must not slip into the small first wave because there is a row of room left.
        while waves[wave] and filled + rows[ordinal] / 2 >= targets[wave] and wave < len(weights) - 1:
            wave += 1
        waves[wave].append(ordinal)
        filled += rows[ordinal]
    return tuple(tuple(sorted(wave_units)) for wave_units in waves if wave_units)
