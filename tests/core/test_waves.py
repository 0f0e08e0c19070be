from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skewless.waves import cut_waves

UNITS = st.dictionaries(st.text(min_size=1, max_size=8), st.integers(0, 1000), max_size=60)
WEIGHTS = st.lists(st.integers(1, 100), min_size=1, max_size=6)


@given(UNITS, WEIGHTS)
def test_every_unit_with_rows_is_in_exactly_one_wave(units: dict[str, int], weights: list[int]) -> None:
    names, rows = list(units), list(units.values())
    waves = cut_waves(names, rows, weights)
    assert sorted(ordinal for wave in waves for ordinal in wave) == [n for n, count in enumerate(rows) if count]
    assert all(wave and list(wave) == sorted(wave) for wave in waves)
    assert len(waves) <= len(weights)


@given(UNITS, WEIGHTS, st.randoms(use_true_random=False))
def test_the_listing_order_does_not_change_the_cut(
    units: dict[str, int], weights: list[int], shuffled: random.Random
) -> None:
    names = list(units)
    other = list(names)
    shuffled.shuffle(other)
    cuts = [
        [{order[ordinal] for ordinal in wave} for wave in cut_waves(order, [units[name] for name in order], weights)]
        for order in (names, other)
    ]
    assert cuts[0] == cuts[1]


@given(st.lists(st.integers(1, 20), min_size=200, max_size=300), WEIGHTS)
def test_many_units_meet_the_weights_within_a_unit_per_wave(rows: list[int], weights: list[int]) -> None:
    waves = cut_waves([f"part-{n}" for n in range(len(rows))], rows, weights)
    reached = 0
    for number, wave in enumerate(waves):
        reached += sum(rows[ordinal] for ordinal in wave)
        target = sum(rows) * sum(weights[: number + 1]) / sum(weights)
        assert target - 10 - 1e-6 <= reached <= target + 20 * (number + 1) or number == len(waves) - 1


@pytest.mark.parametrize(
    ("rows", "waves"),
    [([], 0), ([0, 0], 0), ([5], 1), ([5, 5], 2), ([5, 0, 5, 5], 3), ([1, 1, 1, 1, 1000], 2)],
    ids=["no unit", "no row", "one unit", "two units", "an empty unit", "one giant"],
)
def test_few_units_make_few_waves(rows: list[int], waves: int) -> None:
    assert len(cut_waves([str(n) for n in range(len(rows))], rows, (1, 4, 15, 80))) == waves
