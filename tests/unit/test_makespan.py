"""Tasks side by side, in their order, each in the slot that is free next."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skewless.bounds import makespan


@pytest.mark.parametrize(
    ("loads", "slots", "end"),
    [
        ([], 4, 0),
        ([3, 5], 4, 5),
        ([3, 5, 2], 1, 10),
        ([5, 1, 1, 1, 1], 2, 5),
        ([1, 1, 1, 1, 5], 2, 7),
        ([4, 1, 3, 9], 2, 13),
    ],
    ids=["no task", "a slot for each", "one slot", "the long one first", "the long one last", "into the free slot"],
)
def test_the_last_task_is_done_then(loads: list[float], slots: int, end: float) -> None:
    assert makespan(np.array(loads, dtype=float), slots) == end


@given(st.lists(st.integers(0, 1000), max_size=40), st.integers(1, 8))
def test_it_is_that_of_slots_which_take_the_next_task_when_they_are_free(loads: list[int], slots: int) -> None:
    ends = [0] * slots
    for load in loads:
        ends[ends.index(min(ends))] += load
    assert makespan(np.array(loads, dtype=float), slots) == max(ends)
