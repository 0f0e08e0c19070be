from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skewless.forecast import Rows
from skewless.head_placement import SLIVER, as_shares, place_whole, pour, pour_in_place, water_level
from skewless.routing_plan import WHOLE_SHARE, Shares

LOADS = st.lists(st.floats(0, 1e6), min_size=1, max_size=12).map(np.array)
HEAVY_FIRST = st.lists(st.integers(0, 10**6).map(float), min_size=1, max_size=30).map(
    lambda rows: np.array(sorted(rows, reverse=True))
)


def names(rows: Rows) -> list[str]:
    return [f"k{number}" for number in range(len(rows))]


def loads_of(placed: dict[str, Shares], rows: Rows, base: Rows) -> Rows:
    loads = base.copy()
    for weight, shares in zip(rows, placed.values(), strict=True):
        for task, share in shares:
            loads[task] += weight * share / WHOLE_SHARE
    return loads


def check_shares(placed: dict[str, Shares], tasks: int) -> None:
    for shares in placed.values():
        assert sum(share for _, share in shares) == WHOLE_SHARE
        assert all(share > 0 for _, share in shares)
        assert [task for task, _ in shares] == sorted({task for task, _ in shares})
        assert all(0 <= task < tasks for task, _ in shares)


def off_the_level(level: float, rows: Rows) -> float:
    """Two slivers, and what shares are rounded by: less than one cell of 256 per piece."""
    return 2 * SLIVER * level + min(level, float(rows.max())) / 256 + 1e-6


@given(LOADS, st.floats(0, 1e7))
def test_the_water_level_holds_exactly_the_rows(base: Rows, rows: float) -> None:
    level = water_level(base, rows)
    assert np.maximum(level - base, 0).sum() == pytest.approx(rows, abs=1e-3, rel=1e-6)
    low, high = float(base.min()), float(base.max()) + rows
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if np.maximum(middle - base, 0).sum() < rows else (low, middle)
    assert level == pytest.approx(high, abs=1e-2, rel=1e-6)


@given(HEAVY_FIRST, LOADS)
def test_pouring_fills_every_task_to_the_level_in_few_pieces(rows: Rows, base: Rows) -> None:
    placed = pour(names(rows), rows, base)
    check_shares(placed, len(base))
    level = water_level(base, float(rows.sum()))
    assert loads_of(placed, rows, base).max() <= max(level, base.max()) + off_the_level(level, rows)
    assert sum(map(len, placed.values())) <= len(rows) + len(base) - 1
    assert placed == pour(names(rows), rows, base)


@given(HEAVY_FIRST, LOADS, st.data())
def test_pouring_in_place_reaches_the_level_too(rows: Rows, base: Rows, data: st.DataObject) -> None:
    before = data.draw(LOADS.filter(lambda other: len(other) <= len(base)))
    old = pour(names(rows), rows, before)
    placed = pour_in_place(names(rows), rows, base, old)
    check_shares(placed, len(base))
    level = water_level(base, float(rows.sum()))
    assert loads_of(placed, rows, base).max() <= max(level, base.max()) + 2 * off_the_level(level, rows)
    assert placed == pour_in_place(names(rows), rows, base, old)


@given(HEAVY_FIRST.filter(lambda rows: rows.min() > 0), st.integers(1, 12))
def test_what_is_at_the_level_already_stays_where_it_is(rows: Rows, tasks: int) -> None:
    base = np.zeros(tasks)
    old: dict[str, Shares] = dict.fromkeys(names(rows), ((0, WHOLE_SHARE),))
    base[1:] = rows.sum()
    assert pour_in_place(names(rows), rows, base, old) == old


@given(HEAVY_FIRST, LOADS)
def test_whole_keys_go_to_the_least_loaded_task(rows: Rows, base: Rows) -> None:
    placed = place_whole(names(rows), rows, base)
    loads = base.copy()
    for weight, shares in zip(rows, placed.values(), strict=True):
        ((task, share),) = shares
        assert share == WHOLE_SHARE
        assert loads[task] == loads.min()
        loads[task] += weight


@pytest.mark.parametrize("tasks", [2, 8, 300, 2000])
def test_one_key_heavier_than_all_levels_is_spread_over_all_tasks(tasks: int) -> None:
    rows = np.array([1e9])
    placed = pour(["hot"], rows, np.zeros(tasks))
    assert len(placed["hot"]) == tasks
    assert loads_of(placed, rows, np.zeros(tasks)).max() <= 1e9 / tasks * 1.04


def test_many_light_keys_on_many_tasks_do_not_add_up_on_the_last() -> None:
    rows = np.sort(np.random.default_rng(1).pareto(1.2, 5000) + 1)[::-1]
    base = np.random.default_rng(2).uniform(0, 10, 1000)
    loads = loads_of(pour(names(rows), rows, base), rows, base)
    assert loads.max() <= 1.01 * water_level(base, float(rows.sum()))


@pytest.mark.parametrize(
    ("rows", "base"),
    [
        ([0.0], [0.0, 0.0]),
        ([0.0, 0.0], [5.0, 1.0]),
        ([7.0, 3.0], [4.0]),
        ([3.0, 2.0, 1.0], [0.0, 0.0]),
        ([1.0], [9.0] * 5),
    ],
    ids=["no rows", "no rows on loads", "one task", "more keys than tasks", "more tasks than keys"],
)
def test_degenerate_heads_are_placed(rows: list[float], base: list[float]) -> None:
    weights, loads = np.array(rows), np.array(base)
    keys = names(weights)
    on_task_0: dict[str, Shares] = dict.fromkeys(keys, ((0, WHOLE_SHARE),))
    for placed in (
        pour(keys, weights, loads),
        pour_in_place(keys, weights, loads, on_task_0),
        place_whole(keys, weights, loads),
    ):
        check_shares(placed, len(base))
        assert len(placed) == len(rows)


def test_no_keys_are_no_head() -> None:
    assert pour([], np.zeros(0), np.array([1.0, 2.0])) == {}


@given(st.dictionaries(st.integers(0, 5000), st.floats(1e-3, 1e9), min_size=1, max_size=300))
def test_shares_add_up_whatever_is_rounded(pieces: dict[int, float]) -> None:
    shares = as_shares(pieces)
    check_shares({"k": shares}, 5001)
    total = sum(pieces.values())
    cell = 1 / min(WHOLE_SHARE, 256 * len(pieces))
    assert all(abs(weight / WHOLE_SHARE - pieces[task] / total) <= cell for task, weight in shares)


def test_two_pieces_are_multiples_of_a_512th() -> None:
    assert as_shares({4: 37.0, 2: 63.0}) == ((2, 323 * 128), (4, 189 * 128))
