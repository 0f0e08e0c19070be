"""No placement beats a bound, and each bound is attained: against all placements of tiny instances."""

from __future__ import annotations

import itertools
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


@given(st.lists(st.integers(0, 1000), max_size=40), st.integers(1, 8))
def test_tasks_take_the_slot_that_is_free_next(loads: list[int], slots: int) -> None:
    ends = [0] * slots
    for load in loads:
        ends[ends.index(min(ends))] += load
    assert makespan(np.array(loads, dtype=float), slots) == max(ends)
