"""Tokens are changed one by one while the tail is evened out: their order in blocks, and what comes of it."""

from __future__ import annotations

import bisect

import numpy as np

from skewless.planner.placement.token_balance import _BLOCK, _Places, evened
from skewless.routing.ring import Ring


def test_places_in_blocks_have_the_neighbours_that_they_have_in_one_list() -> None:
    random = np.random.default_rng(4)
    ordered = sorted(set(random.integers(0, 1 << 52, 3 * _BLOCK).tolist()))
    places = _Places(np.array(ordered))
    for number in range(4000):
        # First whole blocks are emptied, then places come back anywhere.
        if number < 2 * _BLOCK or (number % 3 and len(ordered) > 1):
            at = _BLOCK // 2 if len(ordered) > _BLOCK else int(random.integers(len(ordered)))
            gone = ordered.pop(at)
            assert places.remove(gone) == (ordered[at - 1], ordered[at % len(ordered)])
        else:
            come = int(random.integers(0, 1 << 52))
            at = bisect.bisect_left(ordered, come)
            assert places.add(come) == (ordered[at - 1], ordered[at % len(ordered)])
            ordered.insert(at, come)
        assert len(places) == len(ordered)


def test_rows_of_the_tail_come_to_be_spread_more_evenly() -> None:
    ring = Ring.even(64, 64)
    rows = np.random.default_rng(5).poisson(3.0, 1 << ring.ring_bits).astype(float)

    def largest(one: Ring) -> float:
        return float(np.bincount(one.slot_owners, weights=rows).max() / rows.sum() * 64)

    after = evened(ring, rows)
    assert largest(after) < 1.0 + (largest(ring) - 1.0) / 4
