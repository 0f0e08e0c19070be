"""Plan 0 from the last run or for an engine: what it is made of, when it is not made, and what it is worth."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest

from benchmarks.simulation import NULL, Simulation, simulated_job
from skewless.documents.job import Algebra, Job, Lookup, Source
from skewless.documents.stage_report import EngineChoice, Histogram
from skewless.planner.engine_choice import (
    KEYS_OF_A_TASK,
    ONE_PROCESS_ROWS,
    choose_engine,
    combined_unseen,
    first_choice,
    fits_one_process,
    plan_of_choice,
)
from skewless.planner.first_plan import DRIFT_LIMIT, PROBE, first_plan, plain_plan, plans_from, sampled_plan, warm_plan
from skewless.planner.forecast.key_sample import KeyCounts, KeySample, unit_spread
from skewless.planner.forecast.observed_waves import drift, drifted_sentence
from skewless.routing.hashing import key_hash
from skewless.routing.plan import PlanSource, RoutingPlan
from skewless.routing.ring import Ring
from skewless.spec import Map
from skewless.spec.input import FileFormat
from tests.tiers import mostly_long
from tests.unit import synthetic
from tests.unit.synthetic import zipf_rows


def job_from(*locations: str, **routing: Any) -> Job:
    frozen = simulated_job([100] * 1000, **{"reducers": 8, "stage_overhead": 0, **routing})
    return frozen.model_copy(update={"warm_from": locations})


def night(seed: int, shift: int = 0, **routing: Any) -> Simulation:
    """One night's run, not played: Zipf keys in an order of its own, the ranks shifted along the keys."""
    counts = zipf_rows(2000, 1.1, 101_000)
    numbers = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(counts)), counts))[:100_000]
    return Simulation(job_from(**routing), [f"key-{n}" for n in range(len(counts))], (numbers + shift) % len(counts))


@cache
def seen(seed: int, shift: int = 0) -> Histogram:
    return night(seed, shift).play().reports[-1].histogram


def test_a_warm_start_places_the_hot_keys_before_the_first_row_is_read() -> None:
    plan = warm_plan(job_from("/runs/b", "/runs/a"), seen(2), seen(1))
    assert (plan.epoch, plan.waves, plan.share_salt, plan.policy) == (0, (0, 1), 0, "adaptive")
    assert len(plan.head["key-0"]) > 1
    assert len(plan.expected_rows) == len(plan.tasks)
    assert sum(plan.expected_rows) == pytest.approx(job_from().admitted_rows((0, 1)), abs=len(plan.tasks))
    assert plan.sentence.startswith("warm start from run b: ")
    assert plan.sentence.endswith("the keys of the last two runs differ by 0%")
    assert RoutingPlan.from_json(plan.to_json()) == plan


def test_it_makes_the_first_stage_even_and_no_stage_worse() -> None:
    cold, warm = night(3), night(3)
    cold.play()
    warm.play(warm_plan(job_from("/runs/b", "/runs/a"), seen(2), seen(1)))
    assert cold.reports[0].histogram.seen_rows == warm.reports[0].histogram.seen_rows
    queued = [np.array([load.queued_rows for load in run.reports[0].tasks]) for run in (cold, warm)]
    assert queued[0].max() > 1.8 * queued[0].mean()
    assert queued[1].max() < queued[1].mean() + 3 * np.sqrt(queued[1].mean()), "but for the chance of a sample"
    assert sum(warm.makespans) <= 1.005 * sum(cold.makespans), "the first of four waves is a hundredth of the rows"
    assert warm.reports[0].backlog_rows < cold.reports[0].backlog_rows


def test_where_the_keys_of_the_last_two_runs_differ_the_plain_ring_is_taken_and_says_so() -> None:
    job = job_from("/runs/b", "/runs/a")
    plan = warm_plan(job, seen(2), seen(1, 300))
    assert plan.model_copy(update={"sentence": ""}) == first_plan(job).model_copy(update={"sentence": ""})
    assert plan.sentence.startswith("the plain ring: the keys of the last two runs differ by ")
    assert f"more than the {DRIFT_LIMIT:.0%} up to which" in plan.sentence


@pytest.mark.parametrize(
    "routing",
    [{"policy": "static"}, {"policy": "halving"}, {"first_plan": ["sample"]}],
    ids=["static", "halving", "off"],
)
def test_what_makes_no_forecast_or_wants_none_starts_on_the_plain_ring(routing: dict[str, Any]) -> None:
    job = job_from("/runs/b", **routing)
    assert not plans_from(job.spec, "last_run")
    assert warm_plan(job, seen(2), seen(1)) == first_plan(job)


@pytest.mark.parametrize("seconds", [None, 1.0], ids=["not measured", "measured"])
def test_what_a_row_cost_in_the_last_run_spares_the_probe(seconds: float | None) -> None:
    job = job_from("/runs/b", "/runs/a", stage_overhead=4.0, first_plan=["last_run", "sample", "probe"])
    job = job.model_copy(update={"algebra": dict.fromkeys(job.algebra, Algebra(mergeable=True, ordered=False))})
    plan = warm_plan(job, seen(2).model_copy(update={"tail_seconds": seconds}), seen(1))
    assert (plan.waves == (0, 4)) == (seconds is not None)
    assert ("nobody knows yet what a row costs" in plan.sentence) == (seconds is None)


def test_keys_of_one_source_do_not_differ_beyond_chance() -> None:
    assert drift(seen(1), seen(1)) == 0.0
    samples = [histogram(np.random.default_rng(seed).zipf(1.3, 20_000) % 500) for seed in (1, 2)]
    assert 0.0 <= drift(*samples) < 0.02


def test_the_distance_is_the_part_of_the_rows_that_are_of_another_key() -> None:
    first = histogram(np.repeat([1, 2, NULL], [50_000, 30_000, 20_000]))
    second = histogram(np.repeat([1, 2, NULL], [50_000, 10_000, 40_000]))
    assert drift(first, second) == drift(second, first) == pytest.approx(0.2, abs=0.02)


def test_a_first_run_planned_from_a_sample_is_held_to_the_sample_and_to_no_run() -> None:
    first, other = night(3), night(3, 300)
    counts = np.bincount(first.rows[::20], minlength=len(first.texts))
    sample = KeySample(counts[counts > 0], [first.texts[n] for n in np.flatnonzero(counts).tolist()])
    plan = sampled_plan(first.job, first_plan(first.job), sample)
    assert plan.source == PlanSource(kind="sample", rows=5_000)
    first.play(plan)
    other.play(plan)
    said = [drifted_sentence(plan, run.reports[0]) for run in (first, other)]
    assert all(words.endswith("a sample of 5,000 rows, from which the first plan was made") for words in said)
    assert said[1].startswith("the keys differ by at least ")
    assert not any("run" in decision.sentence for decision in first.decisions), "there has been none before"


def test_every_plan_0_says_what_it_was_made_from_and_no_later_plan_does() -> None:
    cold = synthetic.simulated(zipf_rows(100, 1.0, 5000), reducers=3).play()
    assert drifted_sentence(cold.plans[0], cold.reports[0]) == ""
    assert first_plan(job_from()).source == PlanSource(kind="ring")
    plain = plain_plan(job_from("/runs/b"), "a reason")
    assert (plain.source, plain.sentence) == (PlanSource(kind="ring"), "the plain ring: a reason")
    same = night(3).play(warm_plan(job_from("/runs/b"), seen(2), None))
    assert same.plans[0].source == PlanSource(kind="run", run="b", rows=100_000)
    assert {plan.source for plan in same.plans[1:]} == {None}


def histogram(keys: np.ndarray, head_limit: int = 4096, ring_bits: int = 12) -> Histogram:
    texts = [f"key-{n}" for n in range(int(keys.max()) + 1)]
    job = simulated_job([len(keys)], reducers=1, head_limit=head_limit)
    plan = first_plan(job).model_copy(update={"ring": Ring.even(1, 64, ring_bits)})
    return Simulation(job, texts, keys.astype(np.int64)).play(plan).reports[-1].histogram


# Which engine `auto` takes, and the plan of an engine that takes in everything at once.

ROWS = 10_000_000


def job(**algebra: float | None) -> Job:
    frozen = synthetic.job([ROWS], reducers=8)
    spec = frozen.spec.model_copy(update={"engine": "auto"})
    changed = {name: one.model_copy(update=algebra) for name, one in frozen.algebra.items()}
    return frozen.model_copy(update={"spec": spec, "algebra": changed})


def chosen(frozen: Job, sampled: np.ndarray, **given: bool) -> EngineChoice:
    return choose_engine(frozen, KeyCounts(sampled.astype(np.float64)), ROWS, 32, **given)


#: A sample of 200,000 rows: every key once or twice; of a hundred keys; and with a key that has four of ten rows.
MANY, FEW = np.full(150_000, 1.3), np.full(100, 2_000.0)


def test_only_few_rows_of_a_known_price_are_combined_unseen() -> None:
    few, price = synthetic.job([5_000], reducers=8), {"row_seconds": 1e-6}
    small, large = (job(**price).model_copy(update={"units": units}) for units in (few.units, job().units))
    uncounted = tuple(unit.model_copy(update={"counted": False}) for unit in few.units)
    guessed = small.model_copy(update={"units": uncounted})
    assert combined_unseen(small)
    assert first_choice(small, None).engine == "combine", "in one source partition, too"
    assert not combined_unseen(large)
    assert not combined_unseen(guessed)
    assert not combined_unseen(job(row_seconds=None).model_copy(update={"units": few.units}))
    assert not combined_unseen(job(**price, setup_seconds=0.01).model_copy(update={"units": few.units}))


@pytest.mark.parametrize(
    ("name", "lookup_rows", "engine"),
    [("Pages", 2 * ROWS, "combine"), ("pages", 1_000, "staged"), ("of_results", 2 * ROWS, "staged")],
)
def test_no_stage_that_finds_out_is_worth_a_join_of_more_rows_than_its_own(
    name: str, lookup_rows: int, engine: str
) -> None:
    frozen = job(row_seconds=1e-6, state_bytes=200)
    query = Map(query="SELECT i.key FROM input i JOIN pages p ON i.key = p.page")
    frozen = frozen.model_copy(update={"spec": frozen.spec.model_copy(update={"map": query})})
    lookup = Lookup(name=name, input_path="/pages", source=frozen.source, units=synthetic.job([lookup_rows]).units)
    choice = first_choice(frozen.model_copy(update={"lookups": (lookup,)}), None)
    assert (choice.engine, f"joined to {2 * ROWS:,}, and" in choice.sentence) == (engine, engine == "combine")
    assert first_choice(frozen.model_copy(update={"units": (), "waves": ()}), None).engine == "combine", "of no rows"


def test_few_rows_of_a_known_price_fit_one_process() -> None:
    few, price = synthetic.job([ONE_PROCESS_ROWS], reducers=8), {"row_seconds": 1e-6}
    small = job(**price).model_copy(update={"units": few.units})
    assert fits_one_process(small)
    assert not fits_one_process(small.model_copy(update={"units": synthetic.job([ONE_PROCESS_ROWS + 1]).units}))
    assert not fits_one_process(job(row_seconds=None).model_copy(update={"units": few.units}))
    mapped = small.spec.model_copy(update={"map": Map(select=("explode(x) AS x",))})
    assert not fits_one_process(small.model_copy(update={"spec": mapped})), "the map may make any number of rows"


def test_many_keys_are_sent_once_and_all_prices_are_told() -> None:
    choice = chosen(job(row_seconds=1e-6, state_bytes=200), MANY)
    assert choice.engine == "bypass"
    assert 0 < choice.bypass_seconds < min(choice.staged_seconds, choice.combine_seconds)
    for priced in (choice.combine_seconds, choice.bypass_seconds, choice.staged_seconds):
        assert f"{priced:,.1f} s" in choice.sentence


@pytest.mark.parametrize("row_seconds", [None, 1e-3], ids=["unknown", "slow"])
def test_rows_that_may_cost_more_for_some_keys_are_routed_in_stages(row_seconds: float | None) -> None:
    choice = chosen(job(row_seconds=row_seconds, state_bytes=2_000), MANY)
    assert (choice.engine, choice.bypass_seconds) == ("staged", 0.0)
    few = chosen(job(row_seconds=row_seconds, state_bytes=200), MANY)
    assert few.engine == "combine", "states cost less than a stage takes beside its rows"


@pytest.mark.parametrize(
    ("rows", "row_seconds", "engine"),
    [(ROWS, 1e-6, "bypass"), (ROWS // 100, 1e-6, "combine"), (ROWS // 100, 1e-3, "staged"), (9_000, None, "staged")],
)
def test_a_large_source_partition_is_combined_where_it_takes_little_longer(
    rows: int, row_seconds: float | None, engine: str
) -> None:
    found = choose_engine(job(row_seconds=row_seconds), KeyCounts(FEW), rows, 32, largest_split=rows // 4)
    assert found.engine == engine


SELECT, MAPPER = Map(select=("upper(k) AS k",)), Map(mapper="tokens")


@pytest.mark.parametrize(
    ("mapped", "given", "rows", "largest", "engine"),
    [
        pytest.param(SELECT, {"row_seconds": 1e-6}, ROWS, 0, "combine", id="cheap rows and small states"),
        pytest.param(None, {"row_seconds": 1e-6}, ROWS, 0, "combine", id="a key that only Spark can read"),
        pytest.param(SELECT, {"row_seconds": 1e-6, "state_bytes": 10_000}, ROWS, 0, "staged", id="large states"),
        pytest.param(SELECT, {"row_seconds": 1e-6}, 100 * ROWS, 0, "staged", id="many rows"),
        pytest.param(SELECT, {"row_seconds": 1e-6}, ROWS, ROWS, "combine", id="one file that cannot be cut"),
        pytest.param(SELECT, {"row_seconds": 1e-6}, 8 * ROWS, 8 * ROWS, "staged", id="a large one"),
        pytest.param(SELECT, {"row_seconds": 1e-6}, 8 * ROWS, ROWS, "combine", id="as many rows in files"),
        pytest.param(SELECT, {"row_seconds": None}, ROWS, 0, "staged", id="rows of unknown cost"),
        pytest.param(MAPPER, {"row_seconds": 1e-6}, ROWS, 0, "staged", id="a mapper in Python"),
    ],
)
def test_unknown_keys_are_combined_where_a_stage_would_take_longer_than_it_can_save(
    mapped: Map | None, given: dict[str, float | None], rows: int, largest: int, engine: str
) -> None:
    frozen = job(**given)
    frozen = frozen.model_copy(update={"spec": frozen.spec.model_copy(update={"map": mapped})})
    assert choose_engine(frozen, None, rows, 32, largest).engine == engine


@pytest.mark.parametrize(
    ("kind", "path", "options", "engine"),
    [
        pytest.param("csv", "/in/a.csv", {}, "combine", id="lines"),
        pytest.param("text", "/in/a", {"wholetext": "false"}, "combine", id="lines of text"),
        pytest.param("csv", "/in/a.csv.GZ", {}, "staged", id="compressed"),
        pytest.param("json", "/in/a.json", {"multiLine": "True"}, "staged", id="one document"),
        pytest.param("parquet", "/in/a.parquet", {}, "staged", id="row groups"),
    ],
)
def test_a_plain_file_of_lines_is_no_large_split_as_spark_cuts_it(
    kind: FileFormat, path: str, options: dict[str, str], engine: str
) -> None:
    frozen = job(row_seconds=1e-6)
    unit = frozen.units[0].model_copy(update={"path": path, "rows": 8 * ROWS})
    source = Source(format=kind, options=options)
    assert first_choice(frozen.model_copy(update={"units": (unit,), "source": source}), None).engine == engine


def test_heavy_keys_are_placed_so_that_no_task_has_more_than_its_share_and_few_are_split() -> None:
    frozen = job(row_seconds=1e-6)
    counts = np.array([40_000, 9_000, 5_000, 2_000, *[10] * 15_000])
    names = [f"k{number}" for number in range(len(counts))]
    seen = KeySample(counts, names).histogram(10, 10_000)
    choice = EngineChoice(engine="bypass", keys=1_000_000, sentence="bypass")
    plan = plan_of_choice(frozen, first_plan(frozen), choice, seen)
    tasks = len(plan.tasks)
    assert 1_000_000 / tasks <= KEYS_OF_A_TASK < 2 * 1_000_000 / tasks * 8
    assert set(plan.head) == set(names[:4])
    loads = np.full(tasks, 150_000 / tasks)
    for key, weights in plan.head.items():
        for task, weight in weights:
            loads[task] += counts[names.index(key)] * weight / (1 << 16)
    assert loads.max() < 1.01 * counts.sum() / tasks
    assert sum(len(weights) for weights in plan.head.values()) <= 4 + tasks - 1
    few = EngineChoice(engine="bypass", keys=10, sentence="bypass")
    made = [plan_of_choice(frozen.model_copy(update={"slots": slots}), plan, few).task_count for slots in (2, 8, 35)]
    assert made == [8, 8, 32], "a task for each slot, but no fewer than reducers"


# Plan 0 from a sample of the keys: what it names, how much it admits, and what it is worth.

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
