"""No placement beats a bound, and each bound is attained: against all placements of tiny instances."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skewless.bounds import (
    Keys,
    best_bound,
    certify,
    fastest_first,
    heaviest_first,
    known_bounds,
    makespan,
    needed_states,
    states_upper,
)
from skewless.documents.decision import BoundName
from skewless.errors import PlanError

WEIGHTS = st.lists(st.integers(0, 12), min_size=1, max_size=6)
FEW_SPEEDS = st.lists(st.integers(1, 5), min_size=1, max_size=4)


def fair(total: float, tasks: int) -> float:
    return known_bounds(np.zeros(0), total, tasks, True, None)[0].rows


def whole_bound(weights: npt.ArrayLike, tasks: int, *, total: float | None = None) -> float:
    return best_bound(known_bounds(*heaviest_first(weights, total), tasks, False, None)).rows


def whole_bound_at_speeds(weights: npt.ArrayLike, speeds: npt.ArrayLike, *, total: float | None = None) -> float:
    fastest = fastest_first(speeds)
    return best_bound(known_bounds(*heaviest_first(weights, total), len(fastest), False, fastest)).rows


def states_lower(weights: npt.ArrayLike, tasks: int, level: float, splittable: bool) -> int:
    return needed_states(*heaviest_first(weights, None), level, level * tasks, splittable)


def best_whole(weights: Sequence[int], speeds: Sequence[int]) -> Fraction:
    """The least makespan of all placements of whole keys."""
    ends = []
    for placed in itertools.product(range(len(speeds)), repeat=len(weights)):
        loads = [0] * len(speeds)
        for task, weight in zip(placed, weights, strict=True):
            loads[task] += weight
        ends.append(max(Fraction(load, speed) for load, speed in zip(loads, speeds, strict=True)))
    return min(ends)


def end_of(places: Sequence[frozenset[int]], weights: Sequence[int], speeds: Sequence[int]) -> Fraction:
    """The least makespan if key k is split at will over the tasks ``places[k]``: max-flow, min-cut."""
    return max(
        Fraction(
            sum(weights[key] for key in keys),
            sum(speeds[task] for task in frozenset().union(*(places[k] for k in keys))),
        )
        for size in range(1, len(weights) + 1)
        for keys in itertools.combinations(range(len(weights)), size)
    )


def at_most(bound: float, optimum: Fraction) -> bool:
    return bound <= float(optimum) * (1 + 1e-12)


@given(WEIGHTS, FEW_SPEEDS)
def test_no_placement_of_whole_keys_at_speeds_beats_the_bound(weights: list[int], speeds: list[int]) -> None:
    assert at_most(whole_bound_at_speeds(weights, speeds), best_whole(weights, speeds))
    assert at_most(whole_bound(weights, len(speeds)), best_whole(weights, [1] * len(speeds)))


@given(WEIGHTS, st.integers(1, 4), st.integers(0, 6), st.booleans())
def test_a_bound_from_some_of_the_keys_holds_for_all(
    weights: list[int], tasks: int, known: int, at_speeds: bool
) -> None:
    speeds = list(range(1, tasks + 1)) if at_speeds else [1] * tasks
    some, total = weights[:known], float(sum(weights))
    bound = whole_bound_at_speeds(some, speeds, total=total) if at_speeds else whole_bound(some, tasks, total=total)
    assert at_most(bound, best_whole(weights, speeds))


@pytest.mark.parametrize(
    ("weights", "speeds", "optimum", "name"),
    [
        pytest.param([2, 1, 1], [1, 1], 2, "fair share", id="even"),
        pytest.param([5, 1, 1], [1, 1], 5, "heaviest key", id="one giant"),
        pytest.param([3, 3, 3], [1, 1], 6, "several heavy keys", id="three equal on two"),
        pytest.param([4, 3, 2], [1, 1], 5, "several heavy keys", id="unequal pair"),
        pytest.param([1, 1, 1, 1, 1], [1, 1], 3, "several heavy keys", id="three together"),
        pytest.param([9, 5, 4, 4, 1], [1, 1, 1, 1], 9, "heaviest key", id="giant among many"),
        pytest.param([6, 2, 1], [2, 1], 3, "fair share", id="even at speeds"),
        pytest.param([6, 1], [2, 1], 3, "heaviest key", id="on the fastest"),
        pytest.param([3, 3], [2, 1, 1], 3, "several heavy keys", id="both on the fastest"),
        pytest.param([10, 1], [10, 1, 1], 1, "heaviest key", id="k keys on k"),
    ],
)
def test_each_bound_of_whole_keys_is_attained(
    weights: list[int], speeds: list[int], optimum: float, name: BoundName
) -> None:
    alike = max(speeds) == 1
    bound = whole_bound(weights, len(speeds)) if alike else whole_bound_at_speeds(weights, speeds)
    assert bound == optimum == best_whole(weights, speeds)
    certificate = certify(
        Keys(sum(weights), None, splittable=False, weights=weights),
        len(speeds),
        optimum,
        speeds=None if alike else speeds,
    )
    assert (certificate.bound_rows, certificate.bound_name, certificate.gap) == (optimum, name, 0)


@pytest.mark.parametrize(
    ("weights", "tasks", "states"), [([7], 4, 4), ([4, 5], 3, 4), ([1, 1, 1], 1, 3)], ids=["one", "two", "one task"]
)
def test_both_bounds_on_states_are_attained(weights: list[int], tasks: int, states: int) -> None:
    level = sum(weights) / tasks
    assert states_lower(weights, tasks, level, splittable=True) == states == states_upper(len(weights), tasks)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=3), st.integers(1, 3), st.integers(0, 6))
def test_no_plan_of_a_level_has_fewer_states_and_some_plan_no_more(weights: list[int], tasks: int, slack: int) -> None:
    level = Fraction(sum(weights), tasks) + slack
    places = [frozenset(at) for n in range(1, tasks + 1) for at in itertools.combinations(range(tasks), n)]
    fewest = min(
        sum(map(len, chosen))
        for chosen in itertools.product(places, repeat=len(weights))
        if end_of(chosen, weights, [1] * tasks) <= level
    )
    assert states_lower(weights, tasks, float(level), splittable=True) <= fewest <= states_upper(len(weights), tasks)


@given(st.lists(st.integers(1, 12), min_size=1, max_size=3), FEW_SPEEDS)
def test_some_best_plan_makes_no_more_states_than_the_certificate_says(weights: list[int], speeds: list[int]) -> None:
    optimum, tasks = Fraction(sum(weights), sum(speeds)), range(len(speeds))
    places = [frozenset(at) for n in range(1, len(speeds) + 1) for at in itertools.combinations(tasks, n)]
    fewest = min(
        sum(map(len, chosen))
        for chosen in itertools.product(places, repeat=len(weights))
        if end_of(chosen, weights, speeds) <= optimum
    )
    certificate = certify(
        Keys(sum(weights), None, splittable=True, weights=weights),
        len(speeds),
        float(optimum),
        speeds=speeds,
        states=fewest,
    )
    assert certificate.states_lower is not None
    assert certificate.states_upper is not None
    assert certificate.states_lower <= fewest <= certificate.states_upper
    assert at_most(certificate.bound_rows, optimum)


def test_whole_keys_have_one_state_each_and_keys_without_rows_none() -> None:
    assert states_lower([3, 0, 2], 4, 3, splittable=False) == 2
    assert states_lower([3, 0, 2], 4, 2, splittable=True) == 3
    assert states_lower([], 4, 0, splittable=True) == states_lower([0], 4, 0, splittable=False) == 0
    assert states_upper(0, 4) == 0


@pytest.mark.parametrize(("splittable", "lower", "upper"), [(False, 2, 2), (True, 2, 9)], ids=["whole", "at will"])
def test_a_key_that_may_not_be_split_has_one_state(splittable: bool, lower: int, upper: int) -> None:
    certificate = certify(Keys(16, ("k", 8), splittable=splittable, weights=[0, 8, 3]), 8, 8)
    assert (certificate.states_lower, certificate.states_upper) == (lower, upper)


def test_a_third_of_the_rows_on_three_tasks_needs_no_fourth_piece() -> None:
    assert states_lower([100], 3, 100 / 3, splittable=True) == 3
    assert states_lower([0.1 + 0.2], 3, 0.1, splittable=True) == 3


@pytest.mark.parametrize(
    ("splittable", "makespan", "conclusion"),
    [
        (False, 3100, "more tasks will not help: key 'x' alone is 31% of the rows and its aggregates may not be split"),
        (True, 1250, "balanced: the largest task is at the fair share"),
        (True, 1500, "the largest task is 20% above the best possible"),
    ],
    ids=["whole", "balanced", "straggler"],
)
def test_the_conclusion_is_plain(splittable: bool, makespan: float, conclusion: str) -> None:
    for weights in ([3100, 1000, 1000], None):
        assert (
            certify(Keys(10_000, ("x", 3100), splittable=splittable, weights=weights), 8, makespan).conclusion
            == conclusion
        )


def test_more_tasks_do_not_help_below_the_heaviest_key_although_others_meet() -> None:
    weights = [100, *[51] * 10]
    certificate = certify(Keys(610, ("x", 100), splittable=False, weights=weights), 10, 102)
    assert (certificate.bound_rows, certificate.bound_name) == (102, "several heavy keys")
    assert certificate.conclusion == (
        "more tasks will not help below 100 rows: key 'x' alone is 16% of the rows and its aggregates may not be split"
    )
    assert whole_bound(weights, 11) == 100


def test_heavy_keys_that_have_to_meet_are_named_by_their_number() -> None:
    certificate = certify(Keys(9, None, splittable=False, weights=[3, 3, 3]), 2, 6)
    assert certificate.conclusion == (
        "no plan is clearly better: the 3 heaviest keys, which may not be split, "
        "cannot be spread more thinly over 2 tasks"
    )
    assert certify(Keys(9, None, splittable=False, weights=[3, 3, 3]), 2, 9).conclusion == (
        "the largest task is 50% above the best possible"
    )


def test_a_heaviest_key_without_a_name_is_called_so() -> None:
    assert (
        "the heaviest key alone" in certify(Keys(100, None, splittable=False, weights=[50, 30, 20]), 4, 50).conclusion
    )


def test_a_certificate_without_the_weights_says_nothing_of_states() -> None:
    certificate = certify(Keys(800, ("k", 90), splittable=False), 8, 120)
    assert (certificate.bound_name, certificate.states) == ("fair share", None)
    assert (certificate.states_lower, certificate.states_upper) == (None, None)


def test_the_speeds_of_tasks_are_in_the_fair_share() -> None:
    certificate = certify(Keys(100, ("k", 40), splittable=True), 3, 25, speeds=[2, 1, 1])
    assert (certificate.fair_rows, certificate.bound_rows, certificate.gap) == (25, 25, 0)
    slow = certify(Keys(100, ("k", 80), splittable=False), 3, 40, speeds=[2, 1, 1])
    assert (slow.bound_rows, slow.bound_name) == (40, "heaviest key")


def test_nothing_to_place_has_bounds_of_nothing() -> None:
    assert whole_bound([], 3) == whole_bound_at_speeds([], [1, 2]) == fair(0, 3) == 0
    assert whole_bound([], 4, total=10) == 2.5
    certificate = certify(Keys(0, None, splittable=False, weights=[0, 0]), 3, 0, states=0)
    assert (certificate.conclusion, certificate.states_lower, certificate.states_upper) == ("nothing is queued", 0, 0)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: fair(1, 0), "bounds: expected at least one task and a finite total of 0 or more, but got 0 and 1"),
        (lambda: fair(-1, 1), "bounds: expected at least one task"),
        (lambda: fair(float("nan"), 1), "bounds: expected at least one task"),
        (lambda: whole_bound([1], 0), "bounds: expected at least one task"),
        (lambda: whole_bound([-1], 1), "bounds: expected a list of finite weights, none below 0, but got"),
        (lambda: whole_bound([float("inf")], 1), "bounds: expected a list of finite weights"),
        (lambda: whole_bound([[1.0]], 1), "bounds: expected a list of finite weights"),
        (lambda: whole_bound([5, 6], 2, total=10), "bounds: expected a total of at least 11, the sum of the weights"),
        (lambda: whole_bound_at_speeds([1], []), "bounds: expected a list of finite speeds above 0"),
        (lambda: whole_bound_at_speeds([1], [1, 0]), "bounds: expected a list of finite speeds above 0"),
        (lambda: states_lower([4, 4], 2, 3, splittable=True), "states: expected tasks that hold 8 rows, but got a"),
        (lambda: states_lower([4], 2, 3, splittable=False), "states: expected a level of 4 or more, as a key may"),
        (
            lambda: certify(Keys(9, ("k", 4), splittable=True, weights=[5, 4]), 2, 9),
            "certificate: expected weights whose largest is 4, as the heaviest key, but got [5.0]",
        ),
        (
            lambda: certify(Keys(9, None, splittable=True), 2, 9, speeds=[1]),
            "certificate: expected speeds of 2 tasks, but got 1 speeds",
        ),
    ],
)
def test_numbers_that_make_no_sense_are_refused(call: Callable[[], object], sentence: str) -> None:
    with pytest.raises(PlanError) as raised:
        call()
    assert str(raised.value).startswith(sentence)


def test_a_hundred_thousand_keys_on_ten_thousand_tasks_take_no_second() -> None:
    weights = 1e6 / np.arange(1, 100_001)
    speeds = np.linspace(1.0, 3.0, 10_000)
    total = float(weights.sum())
    began = time.perf_counter()
    certify(Keys(total, ("k", 1e6), splittable=False, weights=weights), 10_000, 1e6, speeds=speeds)
    certify(Keys(total, ("k", 1e6), splittable=False, weights=weights), 10_000, 1e6)
    assert time.perf_counter() - began < 1


@given(st.lists(st.integers(0, 1000), max_size=40), st.integers(1, 8))
def test_tasks_take_the_slot_that_is_free_next(loads: list[int], slots: int) -> None:
    ends = [0] * slots
    for load in loads:
        ends[ends.index(min(ends))] += load
    assert makespan(np.array(loads, dtype=float), slots) == max(ends)
