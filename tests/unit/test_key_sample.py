"""Plan 0 from a sample of the keys: what it names, how much it admits, and what it is worth."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from benchmarks.simulation import Simulation, simulated_job
from skewless.documents.job import Algebra, Job
from skewless.planner.first_plan import PROBE, first_plan, sampled_plan
from skewless.planner.forecast.key_sample import KeyCounts, KeySample, unit_spread
from skewless.routing.hashing import key_hash
from skewless.routing.plan import RoutingPlan
from tests.tiers import mostly_long
from tests.unit.synthetic import zipf_rows

NATIVE = Algebra(mergeable=True, ordered=False, row_seconds=1e-6)
UNKNOWN = Algebra(mergeable=True, ordered=False)


def job_with(algebra: Algebra, unit_rows: Sequence[int] = (100,) * 1000, **routing: Any) -> Job:
    frozen = simulated_job(list(unit_rows), **{"reducers": 8, **routing})
    return frozen.model_copy(update={"algebra": dict.fromkeys(frozen.algebra, algebra)})


def sample_of(seed: int = 1, rows: int = 20_000) -> KeySample:
    counts = zipf_rows(2000, 1.2, 101_000)
    keys = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(counts)), counts))[:rows]
    found = np.bincount(keys)
    seen = np.flatnonzero(found)
    return KeySample(found[seen], [f"key-{number}" for number in seen.tolist()])


def test_a_sample_counts_its_rows_once() -> None:
    sample = KeySample(np.array([7, 1, 5, 1, 3]), ["a", "b", None, "c", "x" * 2000])
    found = sample.histogram(ring_bits=4, head_limit=10)
    assert found is not None
    assert (found.seen_rows, found.seen_null_rows, found.head) == (17, 5, {"a": (7, 0)})
    assert sum(found.seen_tail) == 5, "two that came once, and three rows of a key too long to be named"
    assert found.seen_tail[key_hash("x" * 2000) >> 28] >= 3


def planned(job: Job, sample: KeySample | None = None) -> RoutingPlan:
    return sampled_plan(job, first_plan(job), sample or sample_of())


@pytest.mark.parametrize("sample", [KeySample(np.array([3]), None), KeySample(np.zeros(0, dtype=np.int64), [])])
def test_without_texts_or_rows_a_sample_makes_no_plan(sample: KeySample) -> None:
    assert planned(job_with(NATIVE), sample) == first_plan(job_with(NATIVE))


def test_where_rows_cost_next_to_nothing_all_waves_come_at_once() -> None:
    job = job_with(NATIVE)
    plan = planned(job)
    assert plan.waves == (0, len(job.waves))
    assert len(plan.head["key-0"]) > 1
    assert sum(plan.expected_rows) == pytest.approx(job.rows, abs=len(plan.tasks))
    assert plan.sentence.startswith("from a sample of 20,000 rows: ")


@pytest.mark.parametrize("why", ["a probe is asked for", "the sample is small beside the rows"])
def test_where_nobody_knows_what_a_row_costs_the_first_stage_may_be_a_probe(why: str) -> None:
    many = job_with(UNKNOWN, [2_000] * 1000, first_plan=["last_run", "sample", "probe"])
    job = many if why.startswith("a probe") else job_with(UNKNOWN, reducers=64)
    plan = planned(job)
    assert 0 < job.admitted_rows(plan.waves) <= PROBE * job.rows
    assert "nobody knows yet what a row costs" in plan.sentence


def test_a_sample_that_is_good_enough_needs_no_probe() -> None:
    job = job_with(UNKNOWN)
    assert planned(job, sample_of(rows=100_000)).waves == (0, len(job.waves))


def test_the_first_stage_is_even_and_the_run_no_worse() -> None:
    counts = zipf_rows(2000, 1.2, 101_000)
    names = [f"key-{number}" for number in range(len(counts))]
    numbers = np.random.default_rng(5).permutation(np.repeat(np.arange(len(counts)), counts))[:100_000]
    job = simulated_job([100] * 1000, reducers=8, stage_overhead=0)
    cold, sampled = Simulation(job, names, numbers), Simulation(job, names, numbers)
    cold.play()
    sampled.play(planned(job, sample_of(2)))
    queued = [np.array([load.queued_rows for load in run.reports[0].tasks]) for run in (cold, sampled)]
    assert queued[1].max() / queued[1].mean() < 1.2 < queued[0].max() / queued[0].mean()
    assert sum(sampled.makespans) <= sum(cold.makespans) * 1.002


def test_keys_that_are_hot_in_some_partitions_only_make_a_part_of_them_a_bad_sample() -> None:
    rows = np.full(50, 1000)
    by_turns, by_epochs = np.zeros((50, 5), dtype=np.int64), np.zeros((50, 5), dtype=np.int64)
    for number in range(50):
        by_turns[number, number % 5] = 500
        by_epochs[number, number // 10] = 500
    assert unit_spread(by_turns, rows, part=0.1) > 300
    assert unit_spread(by_turns, rows, part=0.5) > 150
    assert unit_spread(by_turns, rows, part=1.0) == 1.0, "all partitions were looked at"
    assert unit_spread(by_turns[:1], rows[:1], part=0.1) == 1.0, "one partition says nothing"
    assert unit_spread(by_epochs, rows, part=0.1) < 50, "what changes slowly is seen by looking everywhere"


# How many keys there are, against inputs whose keys are known.

SAMPLED = 262_144
#: Exponent and keys of Zipf's law; 0 is uniform.
LAWS = [(0.0, 10_000), (0.0, 1_000_000), *((z, keys) for z in (0.8, 1.2, 1.6, 2.0) for keys in (100_000, 1_000_000))]


def sampled(exponent: float, keys: int, rows: int) -> tuple[KeyCounts, int]:
    draw = np.random.default_rng(7)
    weights = np.arange(1, keys + 1, dtype=np.float64) ** -exponent
    counts = draw.multinomial(rows, weights / weights.sum())
    seen = draw.binomial(counts, SAMPLED / rows)
    return KeyCounts(seen[seen > 0].astype(np.float64)), int((counts > 0).sum())


@pytest.mark.parametrize(
    ("rows", "least", "most"), [(1_000_000, 0.88, 1.12), (5_000_000, 0.7, 1.45), (20_000_000, 0.4, 2.6)]
)
@pytest.mark.parametrize(("exponent", "keys"), mostly_long(LAWS, (0.0, 10_000), (1.2, 100_000)))
def test_keys_are_found_from_a_sample_with_an_error_that_grows_with_what_was_not_sampled(
    exponent: float, keys: int, rows: int, least: float, most: float
) -> None:
    counts, true = sampled(exponent, keys, rows)
    assert least * true < counts.keys_in(rows) < most * true


@pytest.mark.parametrize("counts", [np.zeros(0), np.ones(1), np.ones(1000), np.full(1000, 1.3), np.full(3, 1e9)])
def test_there_are_at_least_the_keys_of_the_sample_and_at_most_the_rows(counts: np.ndarray) -> None:
    rows = 10.0 * counts.sum() + 1.0
    found = KeyCounts(counts).keys_in(rows)
    assert len(counts) * 0.999 <= found <= rows if len(counts) else found == 0.0
