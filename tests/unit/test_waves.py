from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skewless.routing.waves import cut_waves

UNITS = st.lists(st.integers(0, 1000), max_size=60)
WEIGHTS = st.lists(st.integers(1, 100), min_size=1, max_size=6)


@given(UNITS, WEIGHTS)
def test_every_unit_with_rows_is_in_exactly_one_wave(rows: list[int], weights: list[int]) -> None:
    waves = cut_waves(rows, weights)
    assert sorted(ordinal for wave in waves for ordinal in wave) == [n for n, count in enumerate(rows) if count]
    assert all(wave and list(wave) == sorted(wave) for wave in waves)
    assert len(waves) <= len(weights)


@given(st.lists(st.integers(1, 20), min_size=200, max_size=300), WEIGHTS)
def test_many_units_meet_the_weights_within_a_unit_per_wave(rows: list[int], weights: list[int]) -> None:
    waves = cut_waves(rows, weights)
    reached = 0
    for number, wave in enumerate(waves):
        reached += sum(rows[ordinal] for ordinal in wave)
        target = sum(rows) * sum(weights[: number + 1]) / sum(weights)
        assert target - 10 - 1e-6 <= reached <= target + 20 * (number + 1) or number == len(waves) - 1


@pytest.mark.parametrize("units", [100, 1000, 10_000])
def test_every_wave_is_spread_over_the_whole_listing(units: int) -> None:
    for wave in cut_waves([10] * units, (1, 4, 15, 80)):
        by_tenth = np.bincount(np.array(wave) * 10 // units, minlength=10)
        assert by_tenth.max() - by_tenth.min() <= max(2, 0.01 * units)


@pytest.mark.parametrize("period", [2, 7, 10, 24, 31, 168])
def test_no_period_of_the_listing_is_met_by_some_waves_only(period: int) -> None:
    """As of files of hours or days, of which every so-and-so-manieth is alike."""
    for wave in cut_waves([10] * 5000, (1, 4, 15, 80)):
        alike = np.bincount(np.array(wave) % period, minlength=period)
        assert alike.max() <= 2 * np.ceil(len(wave) / period)


@pytest.mark.parametrize(
    ("rows", "waves"),
    [([], 0), ([0, 0], 0), ([5], 1), ([5, 5], 2), ([5, 0, 5, 5], 3), ([1, 1, 1, 1, 1000], 2)],
    ids=["no unit", "no row", "one unit", "two units", "an empty unit", "one giant"],
)
def test_few_units_make_few_waves(rows: list[int], waves: int) -> None:
    assert len(cut_waves(rows, (1, 4, 15, 80))) == waves


@given(UNITS, WEIGHTS)
def test_waves_in_order_follow_the_listing_and_leave_nothing_out(rows: list[int], weights: list[int]) -> None:
    waves = cut_waves(rows, weights, in_order=True)
    assert [ordinal for wave in waves for ordinal in wave] == [n for n, count in enumerate(rows) if count]
    assert all(waves)
    assert len(waves) <= len(weights)


@pytest.mark.parametrize(
    ("rows", "waves"),
    [([10] * 20, (1, 4, 15)), ([1000, 1, 1, 1], (1, 1, 2)), ([1, 1, 1, 1000], (3, 1)), ([5, 0, 5, 0, 5], (1, 1, 1))],
    ids=["even", "a giant first", "a giant last", "empty units"],
)
def test_waves_in_order_are_cut_where_their_weights_are_reached(rows: list[int], waves: tuple[int, ...]) -> None:
    assert tuple(map(len, cut_waves(rows, (1, 4, 15), in_order=True))) == waves
