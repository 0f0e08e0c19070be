"""No placement beats a bound, and each bound is attained: against all placements of tiny instances."""

import itertools
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skewless.bounds import Keys, certify, heaviest_first, known_bounds, makespan
from skewless.documents.stage_report import BoundName
from skewless.errors import PlanError

WEIGHTS = st.lists(st.integers(0, 12), min_size=1, max_size=6)


def fair(total: float, tasks: int) -> float:
    return known_bounds(np.zeros(0), total, tasks, True)[0].rows


def whole_bound(weights: npt.ArrayLike, tasks: int, *, total: float | None = None) -> float:
    whole = float(np.sum(weights)) if total is None else total
    return max(bound.rows for bound in known_bounds(heaviest_first(weights, whole), whole, tasks, False))


def best_whole(weights: Sequence[int], tasks: int) -> int:
    ends = []
    for placed in itertools.product(range(tasks), repeat=len(weights)):
        loads = [0] * tasks
        for task, weight in zip(placed, weights, strict=True):
            loads[task] += weight
        ends.append(max(loads))
    return min(ends)


@given(WEIGHTS, st.integers(1, 4))
def test_no_placement_of_whole_keys_beats_the_bound(weights: list[int], tasks: int) -> None:
    assert whole_bound(weights, tasks) <= best_whole(weights, tasks) * (1 + 1e-12)


@pytest.mark.parametrize(
    ("weights", "tasks", "optimum", "name"),
    [
        pytest.param([2, 1, 1], 2, 2, "fair share", id="even"),
        pytest.param([5, 1, 1], 2, 5, "heaviest key", id="one giant"),
        pytest.param([3, 3, 3], 2, 6, "several heavy keys", id="three equal on two"),
        pytest.param([4, 3, 2], 2, 5, "several heavy keys", id="unequal pair"),
        pytest.param([1, 1, 1, 1, 1], 2, 3, "several heavy keys", id="three together"),
        pytest.param([9, 5, 4, 4, 1], 4, 9, "heaviest key", id="giant among many"),
    ],
)
def test_each_bound_of_whole_keys_is_attained(weights: list[int], tasks: int, optimum: int, name: BoundName) -> None:
    assert whole_bound(weights, tasks) == optimum == best_whole(weights, tasks)
    certificate = certify(Keys(sum(weights), None, splittable=False, weights=weights), tasks, optimum)
    assert (certificate.bound_rows, certificate.bound_name, certificate.gap) == (optimum, name, 0)


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


@pytest.mark.parametrize(("makespan", "predicted", "gap"), [(1500, False, 0.2), (1500, True, 0.2), (1000, True, -0.2)])
def test_a_gap_is_the_part_by_which_a_makespan_is_above_its_bound(makespan: int, predicted: bool, gap: float) -> None:
    keys = Keys(10_000, None, splittable=True)
    assert certify(keys, 8, makespan, predicted=predicted).gap == pytest.approx(gap)


def test_more_tasks_do_not_help_below_the_heaviest_key_although_others_meet() -> None:
    weights = [100, *[51] * 10]
    certificate = certify(Keys(610, ("x", 100), splittable=False, weights=weights), 10, 102)
    assert (certificate.bound_rows, certificate.bound_name) == (102, "several heavy keys")
    assert certificate.conclusion == (
        "more tasks will not help below 100 rows: key 'x' alone is 16% of the rows and its aggregates may not be split"
    )
    assert whole_bound(weights, 11) == 100


def test_nothing_to_place_has_bounds_of_nothing() -> None:
    assert whole_bound([], 3) == fair(0, 3) == 0
    assert whole_bound([], 4, total=10) == 2.5
    assert certify(Keys(0, None, splittable=False, weights=[0, 0]), 3, 0).conclusion == "nothing is queued"


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
