"""Plan 0 from a sample of the keys: what it names, how much it admits, and what it is worth."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from benchmarks.simulation import Simulation, simulated_job
from skewless.documents.job import Algebra, Job
from skewless.planner.first_plan import PROBE, first_plan, sampled_plan
from skewless.planner.forecast.key_sample import KeyCounts, KeySample, unit_spread
from skewless.routing.hashing import key_hash
from skewless.routing.plan import WHOLE_WEIGHT, RoutingPlan
from tests.tiers import mostly_long
from tests.unit import synthetic
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


def test_of_more_keys_than_may_be_named_the_others_are_in_their_slots() -> None:
    found = KeySample(np.array([9, 8, 7]), ["a", "b", "c"]).histogram(ring_bits=4, head_limit=1)
    assert found is not None
    assert set(found.head) == {"a"}
    assert found.seen_tail[key_hash("b") >> 28] >= 8


def planned(job: Job, sample: KeySample | None = None) -> RoutingPlan:
    return sampled_plan(job, first_plan(job), sample or sample_of())


@pytest.mark.parametrize("sample", [KeySample(np.array([3]), None), KeySample(np.zeros(0, dtype=np.int64), [])])
def test_without_texts_or_rows_a_sample_makes_no_plan(sample: KeySample) -> None:
    assert planned(job_with(NATIVE), sample) == first_plan(job_with(NATIVE))


@pytest.mark.parametrize("routing", [{"policy": "static"}, {"policy": "halving"}, {"first_plan": ["last_run"]}])
def test_other_policies_and_a_spec_that_says_no_keep_the_plain_ring(routing: dict[str, Any]) -> None:
    assert planned(job_with(NATIVE, **routing)) == first_plan(job_with(NATIVE, **routing))


def test_where_rows_cost_next_to_nothing_all_waves_come_at_once() -> None:
    job = job_with(NATIVE)
    plan = planned(job)
    assert plan.waves == (0, len(job.waves))
    assert len(plan.head["key-0"]) > 1
    assert sum(plan.expected_rows) == pytest.approx(job.rows, abs=len(plan.tasks))
    assert plan.sentence.startswith("from a sample of 20,000 rows: ")


def test_the_budget_of_the_spec_is_a_share_of_what_the_first_stage_admits() -> None:
    job = job_with(NATIVE, budget=1.25)
    plan = planned(job)
    assert plan.waves == (0, len(job.waves))
    assert plan.budget_rows == 1.25 * job.rows / 8


def test_where_a_stage_is_free_there_are_as_many_as_waves() -> None:
    job = job_with(NATIVE, stage_overhead=0)
    assert planned(job).waves == (0, 1)


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


@pytest.mark.parametrize("seed", mostly_long(range(3), 0))
@pytest.mark.parametrize("slow", [False, True])
def test_where_a_probe_would_be_small_slots_take_several_tasks_and_none_is_long_behind(seed: int, slow: bool) -> None:
    """Neither where costs of keys are log-normal, nor where one slot takes three times as long."""
    counts = zipf_rows(2000, 1.2, 101_000)
    numbers = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(counts)), counts))[:100_000]
    costs = np.ones(len(counts)) if slow else np.random.default_rng(seed).lognormal(0.0, 1.0, len(counts))
    speeds = [1.0] * 7 + [1 / 3 if slow else 1.0]
    ideal = float(costs[numbers].sum()) / sum(speeds)
    ends = []
    for algebra, more in ((UNKNOWN, ["probe"]), (UNKNOWN, []), (NATIVE, [])):
        job = job_with(algebra, first_plan=["last_run", "sample", *more])
        plan = planned(job, sample_of(seed, rows=50_000))
        assert plan.waves == (0, len(job.waves))
        run = Simulation(job, [f"key-{number}" for number in range(len(counts))], numbers)
        tasks = run.tasks_of(plan, np.arange(len(numbers)))
        loads = np.bincount(tasks, weights=costs[numbers], minlength=len(plan.tasks))
        ends.append(last_end(loads, speeds) / ideal)
    asked, unasked, like_rows_of_known_cost = ends
    assert asked < (1.2 if slow else 1.1)
    assert unasked > 2.5 if slow else unasked < 1.15
    assert like_rows_of_known_cost > 1.2, "or the test says nothing"


def last_end(loads: np.ndarray, speeds: Sequence[float]) -> float:
    """When the last task is done, each started on the slot that is free first."""
    free = [(0.0, slot) for slot in range(len(speeds))]
    for load in loads.tolist():
        end, slot = heapq.heappop(free)
        heapq.heappush(free, (end + load / speeds[slot], slot))
    return max(free)[0]


def test_a_key_that_stays_whole_waits_for_no_other_task() -> None:
    job = job_with(Algebra(mergeable=False, ordered=False), first_plan=["last_run", "sample", "probe"])
    plan = planned(job)
    assert len(plan.tasks) == 8
    assert job.admitted_rows(plan.waves) <= PROBE * job.rows


def test_the_rows_of_a_sample_are_known_and_not_predicted() -> None:
    """Of keys that are alike, those that the sample has often have more rows in the sample, and no more elsewhere."""
    numbers = np.random.default_rng(1).integers(0, 10_000, 300_000)
    found = np.bincount(numbers[:270_000])
    names = [f"key-{number}" for number in range(len(found))]
    job = job_with(NATIVE, [300] * 1000)
    plan = planned(job, KeySample(found, names))
    tasks = Simulation(job, names, numbers).tasks_of(plan, np.arange(len(numbers)))
    assert np.bincount(tasks).max() < 1.01 * len(numbers) / 8


def largest_over_mean(plan: RoutingPlan, counts: np.ndarray, setup_rows: float) -> float:
    """Of what the tasks of a plan have to do: their rows, and the set-ups of their keys."""
    loads = np.zeros(len(plan.tasks))
    for number, rows in enumerate(counts.tolist()):
        shares = plan.head.get(f"key-{number}") or ((plan.tail_task(f"key-{number}"), WHOLE_WEIGHT),)
        for task, weight in shares:
            loads[task] += rows * weight / WHOLE_WEIGHT + setup_rows
    return float(loads.max() / loads.mean())


@pytest.mark.long
def test_where_a_set_up_takes_as_long_as_many_rows_keys_are_spread_by_both() -> None:
    counts = zipf_rows(20_000, 1.2, 400_000)
    keys = np.random.default_rng(3).permutation(np.repeat(np.arange(len(counts)), counts))
    found = np.bincount(keys[:100_000])
    seen = np.flatnonzero(found)
    sample = KeySample(found[seen], [f"key-{number}" for number in seen.tolist()])
    plans = []
    for row_seconds in (5e-5, None):
        job = job_with(
            Algebra(mergeable=True, ordered=False, setup_seconds=0.005, row_seconds=row_seconds), [400] * 1000
        )
        plans.append(planned(job, sample))
    by_both, by_rows = plans
    assert largest_over_mean(by_both, counts, 100) < 1.08
    assert largest_over_mean(by_rows, counts, 100) > 1.12, "or the test says nothing"


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


def test_partitions_that_are_alike_are_as_good_as_rows_drawn_one_by_one() -> None:
    rng = np.random.default_rng(1)
    counts = rng.multinomial(1000, [0.3, 0.2, 0.1, 0.4], size=50)[:, :3]
    assert unit_spread(counts, np.full(50, 1000), part=0.1) == pytest.approx(1.0, abs=0.3)


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


def test_where_keys_drift_over_the_partitions_the_first_stage_is_no_leap() -> None:
    job = job_with(UNKNOWN)
    sample = sample_of(rows=100_000)
    drifting = KeySample(sample.counts, sample.texts, spread=500.0)
    assert planned(job, sample).waves == (0, len(job.waves))
    assert job.admitted_rows(planned(job, drifting).waves) <= PROBE * job.rows


# How many keys there are, against inputs whose keys are known.

SAMPLED = 262_144
#: Exponent and keys of Zipf's law; 0 is uniform.
LAWS = [(0.0, 10_000), (0.0, 1_000_000), *((z, keys) for z in (0.8, 1.2, 1.6, 2.0) for keys in (100_000, 1_000_000))]


def sampled(exponent: float, keys: int, rows: int) -> tuple[KeyCounts, int]:
    """A sample of an input, and how many keys the input has."""
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


def test_the_keys_of_a_part_of_the_sample_are_those_that_it_is_expected_to_show() -> None:
    counts = KeyCounts(np.full(1000, 8.0))
    assert counts.keys_in(8.0) == pytest.approx(8.0, rel=0.01)
    assert counts.keys_in(8000.0) == pytest.approx(1000.0, rel=0.001)
    assert counts.keys_in(16_000.0) == pytest.approx(1000.0, rel=0.001), "every key has been seen"


@pytest.mark.parametrize("counts", [np.zeros(0), np.ones(1), np.ones(1000), np.full(1000, 1.3), np.full(3, 1e9)])
def test_there_are_at_least_the_keys_of_the_sample_and_at_most_the_rows(counts: np.ndarray) -> None:
    rows = 10.0 * counts.sum() + 1.0
    found = KeyCounts(counts).keys_in(rows)
    assert len(counts) * 0.999 <= found <= rows if len(counts) else found == 0.0


def test_the_keys_of_a_report_are_those_of_its_histogram_not_its_states() -> None:
    """A key that was split has a state in each of its tasks. Of keys that are named, the counts are known."""
    plan = first_plan(synthetic.job([100], reducers=4))
    report = synthetic.report(plan, {"hot": 60, **{f"cold-{at}": 1 for at in range(40)}}, head=["hot"])
    tasks = tuple(one.model_copy(update={"states": 30}) for one in report.tasks)
    split = report.model_copy(update={"tasks": tasks})
    known = split.model_copy(update={"histogram": report.histogram.model_copy(update={"keys": 41})})
    assert [len(KeyCounts.of_report(one).counts) for one in (known, split)] == [41, 120]
    assert sorted(KeyCounts.of_report(known).counts.tolist())[-2:] == [1.0, 60.0]
    assert KeyCounts.of_report(known).rows == 100
