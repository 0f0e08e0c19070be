from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.staged import simulate
from benchmarks.workloads import zipf
from skewless.planner.first_plan import first_plan
from skewless.planner.forecast.forecast import Forecast
from skewless.planner.placement.head_keys import SLIVER, place_whole, place_whole_in_place, pour, water_level
from skewless.planner.placement.placement import Indices, Placement, Rows, sums, whole_weights
from skewless.planner.placement.rebalancing import rebalance, without_cycles
from skewless.planner.placement.ring_changes import for_free_slots, for_full_tasks, for_small_tasks
from skewless.planner.policies.adaptive import propose
from skewless.routing.plan import WHOLE_WEIGHT, RoutingPlan
from tests.unit import synthetic

LOADS = st.lists(st.floats(0, 1e6), min_size=1, max_size=12).map(np.array)
HEAVY_FIRST = st.lists(st.integers(0, 10**6).map(float), min_size=1, max_size=30).map(
    lambda rows: np.array(sorted(rows, reverse=True))
)


def loads_of(placed: Placement, rows: Rows, base: Rows) -> Rows:
    return base + placed.loads(rows, len(base))


def check_shares(placed: Placement, tasks: int) -> None:
    assert np.bincount(placed.key, weights=placed.weight).tolist() == [WHOLE_WEIGHT] * placed.keys
    assert (placed.weight > 0).all()
    assert (np.diff(placed.key) >= 0).all()
    assert ((placed.task >= 0) & (placed.task < tasks)).all()


def same(one: Placement, two: Placement) -> bool:
    return all(np.array_equal(getattr(one, part), getattr(two, part)) for part in ("key", "task", "weight"))


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
    placed = pour(rows, base)
    check_shares(placed, len(base))
    level = water_level(base, float(rows.sum()))
    assert loads_of(placed, rows, base).max() <= max(level, base.max()) + off_the_level(level, rows)
    assert placed.states == len(placed.key) <= len(rows) + len(base) - 1
    assert same(placed, pour(rows, base))


@given(HEAVY_FIRST, LOADS)
def test_whole_keys_go_to_the_least_loaded_task(rows: Rows, base: Rows) -> None:
    placed = place_whole(rows, base)
    loads = base.copy()
    for weight, task in zip(rows, placed.task, strict=True):
        assert loads[task] == loads.min()
        loads[task] += weight


@given(HEAVY_FIRST, LOADS, st.data())
def test_whole_keys_in_place_are_as_even_as_keys_can_be_moved(rows: Rows, base: Rows, data: st.DataObject) -> None:
    tasks = data.draw(st.lists(st.integers(0, len(base) - 1), min_size=len(rows), max_size=len(rows)))
    old = Placement.pinned(np.array(tasks))
    placed = place_whole_in_place(rows, base, old)
    check_shares(placed, len(base))
    assert placed.states == len(rows)
    # Graham's bound of list scheduling: whatever is placed last was placed on the least loaded task.
    ideal = max(water_level(base, float(rows.sum())), rows.max())
    assert loads_of(placed, rows, base).max() <= max(base.max(), ideal) + ideal * (1 + 2 * SLIVER) + 1e-6


@given(st.lists(st.floats(1e-3, 1e9), min_size=2, max_size=300))
def test_shares_add_up_whatever_is_rounded(pieces: list[float]) -> None:
    amounts = np.array(pieces)
    weights = whole_weights(amounts)
    assert weights.sum() == WHOLE_WEIGHT
    cell = 1 / min(WHOLE_WEIGHT, 256 * len(pieces))
    assert (np.abs(weights / WHOLE_WEIGHT - amounts / amounts.sum()) <= cell).all()


def test_a_placement_is_written_as_a_plan_has_it_and_read_back() -> None:
    shares = [((0, WHOLE_WEIGHT),), ((2, 3 * WHOLE_WEIGHT // 4), (0, WHOLE_WEIGHT // 4)), ((1, WHOLE_WEIGHT),)]
    placed = Placement.of_shares(shares)
    assert placed.as_head(["b", "c", "a"]) == {"a": shares[2], "b": shares[0], "c": shares[1]}
    assert (placed.split.tolist(), placed.states) == ([1], 4)


# Keys that were placed before are moved as little as it takes.

POSITIVE_ROWS = st.lists(st.integers(1, 10**6).map(float), min_size=1, max_size=30).map(
    lambda rows: np.array(sorted(rows, reverse=True))
)


def loads_after(old: Placement, amounts: Rows, base: Rows, placed: Placement) -> Rows:
    """With the rows of each piece spread evenly over its segment, and every row's draw as it was."""
    mine, theirs, part = old.overlap(placed)
    return base + sums(placed.task[theirs], amounts[mine] * part, len(base))


@st.composite
def scenes(draw: st.DrawFn) -> tuple[Placement, Rows, Rows]:
    """Keys that were poured once, and what came of that: other rows of each piece, on other loads."""
    rows, before = draw(POSITIVE_ROWS), draw(LOADS)
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


#: Keys that no report names; some buckets have more of them than others.
UNNAMED = {f"key-{number}": 100 + number for number in range(60)}


def plan_with(factors: dict[int, int], **routing: Any) -> RoutingPlan:
    job = synthetic.job([1, 1], policy="adaptive", **{"reducers": 2, "slots": 8, **routing})
    return first_plan(job).model_copy(update={"factors": factors})


def after(plan: RoutingPlan, wave: int = 0, left: float = 1.0, **routing: Any) -> Forecast:
    """After a stage that had the unnamed keys queued, and left that part of them over."""
    seen = sum(UNNAMED.values())
    routing = {"reducers": 2, "slots": 8, **routing}
    job = synthetic.job([seen, wave] if wave else [seen], policy="adaptive", **routing)
    report = synthetic.report(plan, UNNAMED, {key: int(left * rows) for key, rows in UNNAMED.items()}, head=[])
    return Forecast.after(job, plan, report)


def queued(plan: RoutingPlan) -> np.ndarray:
    rows = np.zeros(len(plan.tasks))
    for key, count in UNNAMED.items():
        rows[plan.tail_task(key)] += count
    return rows


@pytest.mark.parametrize("factors", [{}, {0: 2}, {0: 1, 1: 4}, {0: 8, 1: 4}], ids=str)
def test_the_tail_of_a_key_bucket_is_what_the_stage_left_in_it(factors: dict[int, int]) -> None:
    plan = plan_with({0: 8, 1: 4})
    forecast = after(plan)
    # Buckets that are merged add up; what nobody has seen apart is taken to be alike.
    known = forecast.plan_with(factors=factors)
    assert forecast.tail_rows(known) == pytest.approx(queued(known))
    assert forecast.tail_rows(plan) == pytest.approx([load.backlog_rows for load in forecast.report.tasks])


def test_buckets_are_for_free_slots_for_full_tasks_and_merged_where_they_are_small() -> None:
    plan = plan_with({0: 4, 1: 1})
    tail = np.array([10.0, 20.0, 30.0, 40.0, 500.0])
    assert for_free_slots(plan, tail, free=3) == {0: 4, 1: 4}
    assert for_full_tasks(plan, tail, 39.0) == {0: 8, 1: 2}
    assert for_full_tasks(plan, tail, 499.0) == {0: 4, 1: 2}
    assert for_small_tasks(plan, tail, 100.0) == {}
    assert for_small_tasks(plan, tail, 60.0) == {0: 2}  # 0 and 2 are one again, and 1 and 3
    assert for_small_tasks(plan, tail, 59.0) == {0: 4}


@pytest.mark.parametrize(("rows", "reducers"), [(400, 16), (100, 8), (0, 4), (1_000_000, 64)])
def test_so_many_reducers_are_kept_as_a_task_is_worth_its_price(rows: int, reducers: int) -> None:
    """The square root of rows times slots over the price of a task, within the range."""
    job = synthetic.job([1, rows], policy="adaptive", reducers=32, reducer_range=[4, 64])
    forecast = Forecast.after(job, first_plan(job), synthetic.report(first_plan(job), {"a": 1}))
    (one,) = [one for one in propose(job, forecast) if "reducers" in one.action]
    assert one.ring is not None
    assert len(one.ring.tokens) == reducers


def test_a_split_key_that_has_cooled_is_whole() -> None:
    hot = np.arange(30_000) < 10_000
    random = np.random.default_rng(0)
    keys = np.where(hot & (random.random(30_000) < 0.6), 1_000_000, zipf(2_000, 1.0, 30_000, 0))
    _, run = simulate(keys, 8, "adaptive", (1.0,) * 10, in_order=True)
    pieces = [len(plan.head.get("1000000", ())) for plan in run.plans]
    assert max(pieces) > 4
    assert max(pieces[6:]) <= 1
