"""The head of a stream: SpaceSaving against exact counts, the number of choices against brute force."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.peers.head_choices import TOLERANCE, choices_needed, head_of
from benchmarks.peers.space_saving import SpaceSaving, count_message, empty_summaries
from benchmarks.workloads import zipf

KEYS = st.lists(st.integers(0, 19), max_size=200)


def summarised(keys: list[int], counters: int, distinct: int = 20) -> SpaceSaving:
    summary = empty_summaries(2, counters, distinct)
    for key in keys:
        count_message(summary, 1, key)
    return summary


def counters_of(summary: SpaceSaving) -> dict[int, tuple[int, int]]:
    """(count, error) of each key at source 1."""
    columns = (summary.keys[1], summary.counts[1], summary.errors[1])
    return {int(key): (int(count), int(error)) for key, count, error in zip(*columns, strict=True) if key >= 0}


def test_a_new_key_takes_over_the_lowest_counter_with_its_count() -> None:
    assert counters_of(summarised([4, 5, 4, 6], counters=2)) == {4: (2, 0), 6: (2, 1)}


@given(KEYS)
def test_with_a_counter_for_each_key_counts_are_exact(keys: list[int]) -> None:
    assert counters_of(summarised(keys, counters=20)) == {key: (n, 0) for key, n in Counter(keys).items()}


@given(KEYS, st.integers(1, 12))
def test_with_few_counters_the_truth_lies_between_count_less_error_and_count(keys: list[int], counters: int) -> None:
    summary, exact = summarised(keys, counters), Counter(keys)
    kept = counters_of(summary)
    assert summary.counts[1].sum() == len(keys)
    assert all(count - error <= exact[key] <= count for key, (count, error) in kept.items())
    assert all(error <= len(keys) / counters for _, error in kept.values())
    assert {key for key, n in exact.items() if n > len(keys) / counters} <= set(kept)


@given(KEYS, st.integers(1, 12))
def test_a_row_stays_sorted_in_groups_of_equal_count(keys: list[int], counters: int) -> None:
    summary = summarised(keys, counters)
    counts, groups = summary.counts[1], summary.groups[1]
    assert (np.diff(counts) <= 0).all()
    for place, group in enumerate(groups):
        assert summary.starts[1, group] == np.flatnonzero(counts == counts[place])[0]
    assert summary.free_groups[1] == counters - len(set(groups))
    assert set(summary.free[1, : summary.free_groups[1]]) == set(range(counters)) - set(groups)
    assert all(summary.places[1, key] == place for place, key in enumerate(summary.keys[1]) if key >= 0)


def test_a_source_counts_only_what_it_sends() -> None:
    summary = summarised([1, 2, 2], counters=4)
    assert not summary.counts[0].any()
    assert (summary.places[0] == -1).all()


def test_the_head_found_holds_every_key_of_a_fifth_of_a_fair_share() -> None:
    keys, tasks = zipf(1000, 1.2, 20_000, seed=0) - 1, 10
    summary = summarised(keys.tolist(), 20 * tasks, 1000)
    exact = np.sort(np.bincount(keys, minlength=1000) / keys.size)[::-1]
    exact = exact[exact >= 0.2 / tasks]
    head = head_of(summary, 1, keys.size)
    assert head.size >= exact.size
    assert np.allclose(head[: exact.size], exact, atol=0.05 / tasks)


def suffices(head: list[float], d: int, n: int, eps: float) -> bool:
    """The paper's condition, term by term."""
    for h in range(1, len(head) + 1):
        b = n - n * ((n - 1) / n) ** (h * d)
        load = sum(head[:h]) + (b / n) ** d * sum(head[h:]) + (b / n) ** 2 * (1 - sum(head))
        if load > b / n + eps:
            return False
    return True


@pytest.mark.parametrize("tasks", [5, 10, 50, 100])
@pytest.mark.parametrize("exponent", [0.4, 0.8, 1.2, 1.6, 2.0])
def test_the_number_of_choices_is_the_least_that_fulfils_the_condition(exponent: float, tasks: int) -> None:
    law = np.arange(1, 10_001) ** -exponent / (np.arange(1, 10_001) ** -exponent).sum()
    head = law[law >= 0.2 / tasks]
    fewest = next((d for d in range(2, tasks) if suffices(head.tolist(), d, tasks, TOLERANCE)), tasks)
    assert choices_needed(head, tasks, TOLERANCE) == fewest


def test_without_a_head_two_choices_are_enough() -> None:
    assert choices_needed(np.array([]), 50, TOLERANCE) == 2


def test_a_lone_key_needs_all_tasks() -> None:
    assert choices_needed(np.array([1.0]), 50, TOLERANCE) == 50
