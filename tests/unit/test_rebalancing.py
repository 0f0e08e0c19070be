from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skewless.planner.placement.cycle_removal import without_cycles
from skewless.planner.placement.pin_or_split import SLIVER, pour, water_level
from skewless.planner.placement.placement import Indices, Placement, Rows, cells_of, sums
from skewless.planner.placement.rebalancing import rebalance
from skewless.routing.plan import WHOLE_WEIGHT

LOADS = st.lists(st.floats(0, 1e6), min_size=1, max_size=12).map(np.array)
HEAVY_FIRST = st.lists(st.integers(1, 10**6).map(float), min_size=1, max_size=30).map(
    lambda rows: np.array(sorted(rows, reverse=True))
)


def loads_after(old: Placement, amounts: Rows, base: Rows, placed: Placement) -> Rows:
    """With the rows of each piece spread evenly over its segment, and every row's draw as it was."""
    mine, theirs, part = old.overlap(placed)
    return base + sums(placed.task[theirs], amounts[mine] * part, len(base))


@st.composite
def scenes(draw: st.DrawFn) -> tuple[Placement, Rows, Rows]:
    """Keys that were poured once, and what came of that: other rows of each piece, on other loads."""
    rows, before = draw(HEAVY_FIRST), draw(LOADS)
    old = pour(rows, before)
    factors = draw(st.lists(st.floats(0, 3), min_size=len(old.key), max_size=len(old.key)))
    base = draw(st.lists(st.floats(0, 1e6), min_size=len(before), max_size=len(before)))
    return old, rows[old.key] * old.weight / WHOLE_WEIGHT * np.array(factors), np.array(base)


@given(scenes())
def test_tasks_come_to_the_level_with_few_pairs_and_every_share_adds_up(scene: tuple[Placement, Rows, Rows]) -> None:
    old, amounts, base = scene
    placed = rebalance(old, amounts, base)
    assert np.bincount(placed.key, weights=placed.weight).tolist() == [WHOLE_WEIGHT] * old.keys
    assert (placed.weight > 0).all()
    assert (np.diff(placed.key) >= 0).all()
    assert placed.states <= old.keys + len(base) - 1
    total = float(amounts.sum())
    level = water_level(base, total)
    # A cut is rounded to a part of a piece's weight, and a weight may be small.
    coarse = max((amounts / old.weight).max() * len(old.key), amounts.max() * 1e-3)
    assert loads_after(old, amounts, base, placed).max() <= max(level, base.max()) * (1 + 4 * SLIVER) + coarse + 1e-6


@given(HEAVY_FIRST, st.integers(1, 12))
def test_what_is_at_the_level_already_stays_where_it_is(rows: Rows, tasks: int) -> None:
    base = np.zeros(tasks)
    old = Placement.pinned(np.zeros(len(rows), dtype=np.int64))
    base[1:] = rows.sum()
    placed = rebalance(old, rows, base)
    assert (placed.task.tolist(), placed.weight.tolist()) == (old.task.tolist(), old.weight.tolist())


def test_only_what_is_too_much_moves_and_draws_stay() -> None:
    old = Placement.of_shares([((0, WHOLE_WEIGHT // 2), (1, WHOLE_WEIGHT // 4), (2, WHOLE_WEIGHT // 4))])
    amounts = np.array([600.0, 100.0, 200.0])
    placed = rebalance(old, amounts, np.zeros(3))
    assert loads_after(old, amounts, np.zeros(3), placed) == pytest.approx([300, 300, 300], abs=2)
    mine, theirs, part = old.overlap(placed)
    moved = (amounts[mine] * part)[old.task[mine] != placed.task[theirs]].sum()
    assert moved == pytest.approx(300, abs=2)


def test_the_heaviest_key_of_a_full_task_is_cut_and_the_light_ones_stay() -> None:
    old = Placement.pinned(np.array([0, 0, 0, 0, 0]))
    placed = rebalance(old, np.array([1000.0, 5.0, 4.0, 3.0, 2.0]), np.zeros(2))
    assert placed.states == 6
    assert placed.pieces.tolist() == [2, 1, 1, 1, 1]


@given(scenes())
def test_cuts_keep_spark_s_tables_of_shares_small(scene: tuple[Placement, Rows, Rows]) -> None:
    old, amounts, base = scene
    placed = rebalance(old, amounts, base)
    for number in placed.split.tolist():
        weights = placed.weight[placed.key == number]
        tasks = len(set(placed.task[placed.key == number].tolist()))
        before = old.weight[old.key == number]
        finest = min(WHOLE_WEIGHT // cells_of(tasks), int(np.min(before & -before)))
        assert (weights % finest == 0).all()


def test_a_key_that_was_cut_many_times_is_laid_out_anew() -> None:
    old = Placement.of_shares([tuple((number % 2, WHOLE_WEIGHT // 64) for number in range(64))])
    placed = rebalance(old, np.where(old.task == 0, 30.0, 10.0), np.zeros(2))
    assert placed.pieces.tolist() == [2]


@given(st.data())
def test_no_cycle_is_left_and_all_sums_are_kept(data: st.DataObject) -> None:
    keys, tasks = data.draw(st.integers(1, 8)), data.draw(st.integers(1, 8))
    pairs = sorted(data.draw(st.sets(st.tuples(st.integers(0, keys - 1), st.integers(0, tasks - 1)), min_size=1)))
    key, task = np.array(pairs).T
    rows = np.array(data.draw(st.lists(st.integers(0, 1000).map(float), min_size=len(pairs), max_size=len(pairs))))
    found, left = without_cycles(key, task, rows)
    assert (found >= 0).all()
    assert not found[~left].any()
    assert sums(key, found, keys) == pytest.approx(sums(key, rows, keys))
    assert sums(task, found, tasks) == pytest.approx(sums(task, rows, tasks))
    assert set(key[left].tolist()) == set(key.tolist())
    assert is_forest(key[left], task[left])


def test_a_search_that_is_cut_short_keeps_all_sums_and_removes_fewer_cycles() -> None:
    key, task = np.divmod(np.arange(400), 20)
    rows = np.arange(1.0, 401.0)
    whole, few = (without_cycles(key, task, rows, most_steps) for most_steps in (100_000, 200))
    assert np.count_nonzero(whole[1]) < np.count_nonzero(few[1]) < 400
    for found, left in (whole, few):
        assert not found[~left].any()
        assert sums(key, found, 20) == pytest.approx(sums(key, rows, 20))
        assert sums(task, found, 20) == pytest.approx(sums(task, rows, 20))


def is_forest(key: Indices, task: Indices) -> bool:
    root: dict[tuple[str, int], tuple[str, int]] = {}

    def find(node: tuple[str, int]) -> tuple[str, int]:
        while node in root:
            node = root[node]
        return node

    for one, other in zip(key.tolist(), task.tolist(), strict=True):
        ends = find(("key", one)), find(("task", other))
        if ends[0] == ends[1]:
            return False
        root[ends[0]] = ends[1]
    return True
