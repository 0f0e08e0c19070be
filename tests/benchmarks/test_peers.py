from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from benchmarks.outcome import Outcome, imbalance
from benchmarks.peers import PEERS
from benchmarks.peers.candidates import GOLDEN, candidate, hashed_task, mix
from benchmarks.peers.measurement import Stream, measure, sample_points
from benchmarks.peers.routes import off_greedy, on_greedy, pkg_global, pkg_local, pkg_probing, salting, shuffle
from benchmarks.workloads import zipf

#: The most tasks that may hold a state of one key.
STATES_AT_MOST = {
    "hashing": 1, "potc": 1, "on_greedy": 1, "off_greedy": 1, "pkg": 2, "pkg_g": 2, "pkg_l": 2, "pkg_lp": 2,
    "salting": 16, "shuffle": 20, "d_choices_stream": 20, "w_choices_stream": 20,
}  # fmt: skip


def stream_of(*keys: int, tasks: int = 2, sources: int = 5) -> Stream:
    return Stream.of(np.array(keys, dtype=np.int64), tasks, sources)


@pytest.fixture(scope="module")
def skewed() -> Stream:
    return Stream.of(zipf(2_000, 1.2, 50_000, seed=0), 20, 5)


@pytest.fixture(scope="module")
def reference_streams() -> dict[float, npt.NDArray[np.int64]]:
    return {z: zipf(100_000, z, 1_000_000, seed=0) for z in (1.2, 2.0)}


def test_the_hash_is_splitmix64() -> None:
    assert mix(GOLDEN) == 0xE220A8397B1DCDAF
    assert mix(np.uint64((2 * int(GOLDEN)) % 2**64)) == 0x6E789E6AA1B965F4


def test_two_hash_functions_spread_keys_evenly_and_independently() -> None:
    pairs = np.zeros((10, 10))
    for key in range(50_000):
        pairs[hashed_task(np.uint64(key), 0, 10, np.uint64(0)), hashed_task(np.uint64(key), 1, 10, np.uint64(0))] += 1
    # 99 degrees of freedom: the statistic is above 160 once in ten thousand seeds.
    assert ((pairs - 500) ** 2 / 500).sum() < 160


@pytest.mark.parametrize("tasks", [2, 3, 10])
def test_the_first_two_candidates_differ_and_all_pairs_occur(tasks: int) -> None:
    seed = np.uint64(1)
    pairs = {
        (candidate(np.uint64(key), 0, tasks, seed), candidate(np.uint64(key), 1, tasks, seed)) for key in range(3_000)
    }
    assert pairs == {(first, second) for first in range(tasks) for second in range(tasks) if first != second}


@pytest.mark.parametrize("policy", PEERS)
def test_every_message_goes_to_one_task_and_a_key_to_no_more_than_it_may(policy: str, skewed: Stream) -> None:
    targets = PEERS[policy].route(skewed)
    assert targets.shape == skewed.keys.shape
    assert np.bincount(targets, minlength=20).shape == (20,)
    pairs = np.unique(skewed.ids * 20 + targets)
    assert np.bincount(pairs // 20).max() <= STATES_AT_MOST[policy]
    assert measure(policy, skewed, targets).states_per_key == pairs.size / skewed.distinct


@pytest.mark.parametrize("policy", PEERS)
def test_a_peer_says_its_name_and_repeats_itself(policy: str) -> None:
    keys = zipf(500, 1.0, 5_000, seed=2)
    outcome = PEERS[policy](keys, 7, seed=9)
    assert outcome == PEERS[policy](keys, 7, seed=9)
    assert (outcome.policy, outcome.tasks, outcome.messages) == (policy, 7, 5_000)
    assert (outcome.rows_forwarded, outcome.stages) == (0, 1)
    assert outcome.makespan_over_ideal == pytest.approx(1 + 7 * outcome.imbalance_final)


@pytest.mark.parametrize("policy", PEERS)
def test_one_task_takes_everything(policy: str) -> None:
    outcome = PEERS[policy](zipf(50, 1.0, 1_000, seed=2), 1)
    assert (outcome.makespan_over_ideal, outcome.imbalance_fraction, outcome.states_per_key) == (1, 0, 1)


def test_more_choices_split_a_key_over_more_tasks(skewed: Stream) -> None:
    states = [np.bincount(np.unique(skewed.ids * 20 + pkg_local(skewed, choices=d)) // 20).max() for d in (1, 2, 3, 5)]
    assert states == [1, 2, 3, 5]


def test_off_line_greedy_places_the_most_frequent_key_first_and_is_measured_in_the_order_of_the_stream() -> None:
    stream = stream_of(*[4] * 3, *[3] * 3, *[2] * 3, *[1] * 4, *[0] * 5)
    assert np.bincount(off_greedy(stream)).tolist() == [8, 10]
    outcome = PEERS["off_greedy"](np.repeat(np.arange(2), 500), 2)
    assert outcome.imbalance_final == 0
    assert outcome.imbalance_fraction == pytest.approx(0.125, rel=0.01)


def test_on_line_greedy_sends_a_new_key_to_the_least_loaded_task() -> None:
    assert on_greedy(stream_of(8, 8, 9, 8, 5, 9, tasks=3)).tolist() == [0, 0, 1, 0, 2, 1]


def test_true_loads_and_two_tasks_balance_to_one_message() -> None:
    targets = pkg_global(stream_of(*zipf(10, 2.0, 999, seed=0), tasks=2))
    assert sorted(np.bincount(targets).tolist()) == [499, 500]


def test_one_source_or_probing_before_every_message_knows_the_true_loads(skewed: Stream) -> None:
    alone = Stream.of(skewed.keys.view(np.int64), skewed.tasks, sources=1)
    assert np.array_equal(pkg_local(alone), true := pkg_global(skewed))
    assert np.array_equal(pkg_probing(skewed, probe_every=1), true)
    # The probe at the start finds no load.
    assert np.array_equal(pkg_probing(skewed, probe_every=skewed.keys.size), pkg_local(skewed))


def test_a_source_keeps_its_own_loads() -> None:
    # One key, two sources: each alternates by itself, both beginning with the first candidate.
    first, _, second, _ = pkg_local(stream_of(1, 1, 1, 1, sources=2))
    assert pkg_local(stream_of(*[1] * 8, sources=2)).tolist() == [first, first, second, second] * 2


def test_messages_of_one_key_and_one_salt_stay_together_and_shuffling_is_a_round_robin() -> None:
    targets = salting(stream_of(*[3] * 64, tasks=1000))
    assert np.array_equal(targets[:16], targets[48:])
    assert len(set(targets.tolist())) > 12
    assert shuffle(stream_of(1, 2, 3, 4, 5, tasks=3)).tolist() == [0, 1, 2, 0, 1]


def test_a_key_grouping_of_two_keys_is_measured_as_by_hand() -> None:
    assert imbalance(np.array([7, 1, 1])) == 4
    # I(t) is t - t/2 for the first half, and falls back to 0: all points in time are taken.
    stream = stream_of(1, 1, 2, 2)
    outcome = measure("by hand", stream, np.array([0, 0, 1, 1], dtype=np.int32))
    assert outcome == Outcome("by hand", 2, 4, 1.0, (0.5 + 1 + 0.5 + 0) / 4 / 4, 0.0, 1.0, 0, 1)


@pytest.mark.parametrize("messages", [1, 7, 1_000, 1_234_567])
def test_a_stream_is_sampled_once_in_each_thousandth(messages: int) -> None:
    points = sample_points(messages)
    assert points.size == min(messages, 1000)
    assert points.min() >= 1
    assert points.max() <= messages
    assert np.diff(points).max(initial=0) <= 2 * max(1, messages / 1000)


def test_keys_of_any_size_are_numbered_in_their_order() -> None:
    for keys in ([-5, 2**62, 0, -5], [0, 9, 4, 0], [0, 99_999_999, 5, 0]):
        stream = stream_of(*keys)
        assert stream.distinct == 3
        assert stream.ids.tolist() == [sorted(set(keys)).index(key) for key in keys]


@pytest.mark.parametrize(("keys", "tasks", "sources"), [([], 1, 1), ([1], 0, 1), ([1], 1, 0)])
def test_a_stream_without_messages_tasks_or_sources_is_refused(keys: list[int], tasks: int, sources: int) -> None:
    with pytest.raises(ValueError, match="a stream needs"):
        Stream.of(np.array(keys, dtype=np.int64), tasks, sources)


@pytest.mark.long
@pytest.mark.parametrize(
    ("policy", "exponent", "tasks", "imbalance_final", "states_per_key"),
    [
        ("hashing", 1.2, 50, 1.8e-1, None),
        ("pkg", 1.2, 50, 7.9e-2, None),
        ("w_choices_stream", 1.2, 50, 2e-6, 1.30),
        ("shuffle", 1.2, 50, None, 3.8),
        ("hashing", 2.0, 100, 6.0e-1, None),
        ("pkg", 2.0, 100, 2.9e-1, None),
        ("w_choices_stream", 2.0, 100, 1e-6, 2.69),
        ("shuffle", 2.0, 100, None, 10.3),
    ],
)
def test_imbalance_is_within_a_factor_of_two_and_states_within_5_percent_of_the_reference(
    policy: str, exponent: float, tasks: int, imbalance_final: float | None, states_per_key: float | None,
    reference_streams: dict[float, npt.NDArray[np.int64]],
) -> None:  # fmt: skip
    measured = PEERS[policy](reference_streams[exponent], tasks)
    if imbalance_final is not None:
        assert imbalance_final / 2 <= measured.imbalance_final <= 2 * imbalance_final
    if states_per_key is not None:
        assert measured.states_per_key == pytest.approx(states_per_key, rel=0.05)


@pytest.mark.long
@pytest.mark.parametrize(("exponent", "tasks"), [(1.2, 50), (2.0, 100)])
def test_d_choices_stay_within_their_tolerance_per_task_with_fewer_states_than_w_choices(
    exponent: float, tasks: int, reference_streams: dict[float, npt.NDArray[np.int64]]
) -> None:
    fewer, all_tasks = (PEERS[p](reference_streams[exponent], tasks) for p in ("d_choices_stream", "w_choices_stream"))
    assert all_tasks.imbalance_final <= fewer.imbalance_final <= 1e-3
    assert fewer.states_per_key < all_tasks.states_per_key
