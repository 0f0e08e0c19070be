"""The engines: the same answer wherever states are made, and a choice that says why."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import orc
from pyspark.sql import SparkSession

from skewless.bounds import run_certificate
from skewless.planner import engine_choice
from skewless.spec import routing as core
from skewless_cli import views
from skewless_spark.engines import ENGINES
from tests.spark.scenario import as_rows, reduce_job, result_of, run_job, spec_of, write_input
from tests.spark.test_pipeline import AGGREGATES, skewed
from tests.spark.toy_engine import Toy
from tests.tiers import mostly_long

NATIVE = {**AGGREGATES, "earliest": {"function": "first", "column": "word"}}
PYTHON = {"words": {"function": "value_counts", "column": "word"}}
BOTH = {**NATIVE, **PYTHON}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_input(tmp_path_factory.mktemp("engines") / "input", skewed(), files=20)


@pytest.mark.parametrize("aggregates", mostly_long([NATIVE, PYTHON, BOTH], BOTH), ids=["native", "python", "both"])
def test_all_engines_give_the_same_result(spark: SparkSession, tmp_path: Path, aggregates: dict[str, Any]) -> None:
    path = write_input(tmp_path / "input", skewed(6_000), files=8)
    results = {}
    for engine in ("combine", "bypass", "staged"):
        routing = {"reducers": 3, "waves": [1, 3], "first_plan": ["sample"] if engine == "bypass" else []}
        spec = spec_of(path, "key", aggregates, engine=engine, routing=routing)
        run, reports = reduce_job(spark, spec, tmp_path / engine)
        results[engine] = as_rows(result_of(run))
        assert sum(report.processed_rows for report in reports) == 6_000
        assert (len(reports) == 1) == (engine != "staged")
        assert reports[-1].histogram.seen_rows == 6_000
    assert results["combine"] == results["staged"]
    assert results["bypass"] == results["staged"]


def test_auto_combines_few_rows_without_a_look_at_their_keys(spark: SparkSession, tmp_path: Path) -> None:
    path = write_input(tmp_path / "input", skewed(3_000), files=1)
    run, _ = reduce_job(spark, spec_of(path, "key", {"n": "count"}, engine="auto"), tmp_path / "run")
    choice = run.decision(0).engine
    assert choice is not None
    assert (choice.engine, choice.keys) == ("combine", 0)
    assert "3,000 states would take 0.0 s, less than to find out" in choice.sentence
    assert {row["key"]: row["n"] for row in result_of(run).to_pylist()} == Counter(skewed(3_000)["key"].to_pylist())


@pytest.fixture
def samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let ``auto`` look at a sample of the keys, however few rows there are."""
    monkeypatch.setattr(engine_choice, "UNSEEN_SECONDS", 0.0)


@pytest.mark.usefixtures("samples")
def test_auto_combines_few_keys_and_says_why(spark: SparkSession, path: Path, tmp_path: Path) -> None:
    run, reports = reduce_job(spark, spec_of(path, "key", {"n": "count"}, engine="auto"), tmp_path / "run")
    choice = run.decision(0).engine
    assert choice is not None
    assert (choice.engine, len(reports)) == ("combine", 1)
    assert 1_000 < choice.keys < 2_500
    assert choice.combine_seconds < choice.staged_seconds
    assert "states in 16 splits" in run.decision(0).sentence


def test_bypass_splits_hot_keys_and_null_and_makes_one_state_of_all_others(spark: SparkSession, tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    light = [f"k{number}" for number in rng.integers(0, 5_000, 20_000).tolist()]
    keys = np.array(["hot"] * 16_000 + [None] * 4_000 + light, dtype=object)
    table = pa.table({"key": rng.permutation(keys).tolist(), "user": rng.integers(0, 1000, 40_000)})
    path = write_input(tmp_path / "input", table)
    aggregates = {"n": "count", "users": {"function": "approx_count_distinct", "column": "user"}}
    routing = {"reducers": 4, "first_plan": ["last_run", "sample"]}
    spec = spec_of(path, "key", aggregates, engine="bypass", routing=routing)
    run, (report,) = reduce_job(spark, spec, tmp_path / "run")
    assert len(run.plan(0).head["hot"]) > 1
    assert report.max_over_mean is not None
    assert report.max_over_mean < 1.1, "the hot key alone is 1.6 times a task's share"
    split = {key: len(weights) for key, weights in run.plan(0).head.items() if len(weights) > 1}
    states = sum(load.states for load in report.tasks)
    assert states <= len(set(light)) + 4 + sum(split.values()), "null has a state in each task"
    counts = Counter(table["key"].to_pylist())
    assert {row["key"]: row["n"] for row in result_of(run).to_pylist()} == counts


@pytest.fixture
def looks_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let ``auto`` begin with a stage that only finds out, however short the run."""
    monkeypatch.setattr(engine_choice, "FIRST_STAGE_SECONDS", 0.0)


@pytest.mark.long
@pytest.mark.usefixtures("looks_first")
def test_bypass_takes_in_what_a_first_stage_left_over(spark: SparkSession, tmp_path: Path) -> None:
    words = [f"{number}" for number in np.random.default_rng(4).integers(0, 4_000, 40_000)]
    folder = tmp_path / "input" / "shop=north"  # keys that are not in the files are not sampled
    folder.mkdir(parents=True)
    for number in range(40):
        orc.write_table(pa.table({"word": words[number::40]}), folder / f"part-{number:03d}.orc")
    users = {name: {"function": "approx_count_distinct", "column": "word"} for name in "abcdefgh"}
    aggregates = {**users, "n": "count"}  # states that cost more than rows that are sent
    source = {"path": str(tmp_path / "input"), "format": "orc"}
    routing = {"budget": 1.0, "reducers": 2}
    key = ["word", "shop"]
    spec = spec_of(tmp_path / "input", key, aggregates, engine="auto", input=source, routing=routing)
    run, reports = reduce_job(spark, spec, tmp_path / "run")
    assert [run.plan(stage).engine for stage in range(len(reports))] == ["staged", "bypass"]
    assert reports[1].backlog_in_rows == reports[0].backlog_rows > 0
    assert {row["word"]: row["n"] for row in result_of(run).to_pylist()} == Counter(words)


@pytest.mark.long
@pytest.mark.parametrize("key", ["key", ["key", "number"]])
def test_plan_0_is_made_from_a_sample_and_names_keys_as_spark_does(
    spark: SparkSession, tmp_path: Path, key: str | list[str]
) -> None:
    rng = np.random.default_rng(6)
    ranks = rng.zipf(1.5, 20_000) % 500
    days = np.datetime64("2026-01-01") + ranks
    table = pa.table({"key": [None if rank == 3 else f"k ä{rank}" for rank in ranks.tolist()],
                      "number": ranks, "day": days.astype("datetime64[D]")})  # fmt: skip
    path = write_input(tmp_path / "input", table)
    spec = spec_of(path, key, {"n": "count"}, routing={"reducers": 4, "first_plan": ["last_run", "sample"]})
    run, reports = reduce_job(spark, spec, tmp_path / "run")
    plan, report = run.plan(0), reports[0]
    assert plan.sentence.startswith("from a sample of ")
    assert len(reports) == 1, "rows of native aggregates cost next to nothing"
    assert plan.head
    assert set(plan.head) <= set(report.histogram.head)
    predicted = np.array(plan.expected_rows)
    queued = np.array([load.queued_rows for load in report.tasks])
    assert np.abs(queued - predicted).max() < 0.1 * predicted.mean(), "the sample was most of the input"
    assert queued.max() < 1.1 * queued.mean()


@pytest.mark.long
def test_combine_reports_what_each_input_split_did_and_how_often_keys_occur(
    spark: SparkSession, path: Path, tmp_path: Path
) -> None:
    spec = spec_of(path, "key", BOTH, engine="combine", routing={"reducers": 3})
    run, (report,) = reduce_job(spark, spec, tmp_path / "run")
    keys = Counter(skewed()["key"].to_pylist())
    assert report.tasks == ()
    assert 1 < len(report.splits) <= 20
    assert sum(split.rows for split in report.splits) == report.processed_rows == 30_000
    states = [split.states for split in report.splits if split.states is not None]
    assert len(states) == len(report.splits)
    assert all(0 < count <= split.rows for count, split in zip(states, report.splits, strict=True) if split.rows)
    assert len(keys) < sum(states) <= len(keys) * len(report.splits), "a hot key has a state in every split"
    assert all(split.busy_seconds is not None for split in report.splits if split.rows)
    histogram = report.histogram
    nulls = keys.pop(None, 0)
    assert (histogram.seen_rows, histogram.seen_null_rows, histogram.keys) == (30_000, nulls, len(keys))
    assert {key: seen for key, (seen, _) in histogram.head.items()} == {key: keys[key] for key in histogram.head}
    assert max(histogram.head, key=lambda key: histogram.head[key][0]) == keys.most_common(1)[0][0]
    ring, tail = run.plan(0).ring, keys.keys() - histogram.head.keys()
    slots = Counter(ring.slot_of(key) for key in tail for _ in range(keys[key]))
    assert {slot: rows for slot, rows in enumerate(histogram.seen_tail) if rows} == slots
    whole = run_certificate(run.job(), [report])
    assert whole.gap is not None
    assert 0 <= whole.gap < 1
    told = views.replay_as_object(run, ["static", "adaptive"])
    assert [line["policy"] for line in told["policies"]] == ["as it ran", "static", "adaptive"]
    assert told["policies"][0]["makespan_over_bound"] == 1 + whole.gap
    assert all(line["makespan_over_bound"] >= 1 for line in told["policies"])
    assert told["policies"][1]["states"] >= len(histogram.head), "the keys that policies place are those of the run"


@pytest.mark.parametrize("engine", ["staged", "combine", "bypass"])
def test_slots_are_those_of_spark(spark: SparkSession, few_skewed: Path, tmp_path: Path, engine: str) -> None:
    for given, slots in ((None, 2), (4, 4)):
        spec = spec_of(few_skewed, "key", {"n": "count"}, routing={"reducers": 8, "slots": given}, engine=engine)
        run, (first, *_) = reduce_job(spark, spec, tmp_path / f"run-{slots}")
        assert (run.job().slots, first.slots, run_certificate(run.job(), [first]).tasks) == (2, 2, slots)


@pytest.mark.long
def test_one_more_engine_is_a_module_and_a_line_for_planner_and_spark(
    spark: SparkSession, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, _ = reduce_job(spark, spec_of(path, "key", BOTH, engine="bypass"), tmp_path / "bypass")
    monkeypatch.setitem(core.ENGINES, "toy", core.EngineTraits())
    monkeypatch.setitem(ENGINES, "toy", Toy())
    run, finished, (report,) = run_job(spark, spec_of(path, "key", BOTH, engine="toy"), tmp_path / "toy")
    assert finished.quality.success
    assert [load.queued_rows for load in report.tasks if load.queued_rows] == [30_000], "all rows are in one task"
    assert as_rows(result_of(run)) == as_rows(result_of(expected))
    assert (run.plan(0).engine, run.decision(0).sentence) == ("toy", "toy, as the spec says")
