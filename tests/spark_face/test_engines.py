"""The engines: the same answer wherever states are made, and a choice that says why."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from skewless.run_directory import RunDirectory
from tests.spark_face.scenario import as_rows, plain, reduce_job, result_of, run_job, spec_of, write_input
from tests.spark_face.test_pipeline import AGGREGATES, skewed

NATIVE = {**AGGREGATES, "earliest": {"function": "first", "column": "word"}}
PYTHON = {"words": {"function": "value_counts", "column": "word"}}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_input(tmp_path_factory.mktemp("engines") / "input", skewed(), files=20)


@pytest.mark.parametrize("aggregates", [NATIVE, PYTHON, {**NATIVE, **PYTHON}], ids=["native", "python", "both"])
def test_combine_gives_the_result_of_staged(
    spark: SparkSession, path: Path, tmp_path: Path, aggregates: dict[str, Any]
) -> None:
    results = {}
    for engine in ("combine", "staged"):
        spec = spec_of(path, "key", aggregates, engine=engine, routing={"reducers": 3})
        run, reports = reduce_job(spark, spec, tmp_path / engine)
        results[engine] = as_rows(result_of(run))
        assert sum(report.processed_rows for report in reports) == 30_000
        assert (len(reports) == 1) == (engine == "combine")
    assert results["combine"] == results["staged"]


def test_combine_is_what_plain_spark_says(spark: SparkSession, path: Path, tmp_path: Path) -> None:
    spec = spec_of(path, "key", AGGREGATES, engine="combine")
    run, finished, reports = run_job(spark, spec, tmp_path / "run")
    expected = plain(
        spark, path, ["key"], F.count("*").alias("n"), F.count("value").alias("filled"), F.sum("value").alias("total"),
        F.min("value").alias("least"), F.max("value").alias("most"), F.avg("value").alias("mean"),
    )  # fmt: skip
    assert as_rows(result_of(run)) == as_rows(expected.toArrow())
    assert finished.quality.success
    assert reports[0].tasks == ()
    assert run.decision(0).engine is not None
    assert run.plan(0).engine == "combine"


def test_auto_combines_few_keys_and_says_why(spark: SparkSession, path: Path, tmp_path: Path) -> None:
    run, reports = reduce_job(spark, spec_of(path, "key", {"n": "count"}, engine="auto"), tmp_path / "run")
    choice = run.decision(0).engine
    assert choice is not None
    assert (choice.engine, len(reports)) == ("combine", 1)
    assert 1_000 < choice.keys < 2_500
    assert choice.combine_seconds < choice.staged_seconds
    assert "states in 16 splits" in run.decision(0).sentence


def test_auto_routes_many_keys_with_large_states(spark: SparkSession, tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    table = pa.table({"key": rng.integers(0, 20_000, 60_000), "user": rng.integers(0, 1000, 60_000)})
    path = write_input(tmp_path / "input", table)
    aggregates = {"users": {"function": "approx_count_distinct", "column": "user"}}
    run, _ = reduce_job(spark, spec_of(path, "key", aggregates, engine="auto"), tmp_path / "run")
    choice = run.decision(0).engine
    assert choice is not None
    assert choice.engine == run.plan(0).engine == "staged"
    assert choice.states > 2 * choice.keys


def test_auto_combines_after_a_first_stage_where_keys_could_not_be_sampled(spark: SparkSession, tmp_path: Path) -> None:
    table = pa.table({"line": [f"{number % 7} {number % 3}" for number in range(4_000)]})
    path = write_input(tmp_path / "input", table, files=40)
    mapping = {"select": ["explode(split(line, ' ')) AS word"]}
    spec = spec_of(path, "word", {"n": "count"}, engine="auto", map=mapping)
    run, reports = reduce_job(spark, spec, tmp_path / "run")
    assert [run.plan(stage).engine for stage in range(len(reports))] == ["staged", "combine"]
    assert reports[1].backlog_in_rows == reports[0].backlog_rows
    counts = {row["word"]: row["n"] for row in result_of(run).to_pylist()}
    assert sum(counts.values()) == 8_000
    assert counts["3"] == sum(number % 7 == 3 for number in range(4_000))
    assert "states in" in RunDirectory(str(tmp_path / "run")).decision(1).sentence


def test_a_job_that_cannot_be_merged_is_never_combined(spark: SparkSession, path: Path, tmp_path: Path) -> None:
    aggregates = {"middle": {"function": "exact_median", "column": "value"}}
    run, _ = reduce_job(spark, spec_of(path, "key", aggregates, engine="auto"), tmp_path / "run")
    assert {run.plan(epoch).engine for epoch in range(run.committed_stages())} == {"staged"}


@pytest.mark.parametrize("key", ["key", "number", ["key", "number"], "day"])
def test_plan_0_is_made_from_a_sample_and_names_keys_as_spark_does(
    spark: SparkSession, tmp_path: Path, key: str | list[str]
) -> None:
    rng = np.random.default_rng(6)
    ranks = rng.zipf(1.5, 20_000) % 500
    days = np.datetime64("2026-01-01") + ranks
    table = pa.table({"key": [None if rank == 3 else f"k ä{rank}" for rank in ranks.tolist()],
                      "number": ranks, "day": days.astype("datetime64[D]")})  # fmt: skip
    path = write_input(tmp_path / "input", table)
    spec = spec_of(path, key, {"n": "count"}, routing={"reducers": 4, "key_sample": True})
    run, reports = reduce_job(spark, spec, tmp_path / "run")
    plan, report = run.plan(0), reports[0]
    assert plan.sentence.startswith("from a sample of ")
    assert len(reports) == 1, "rows of native aggregates cost next to nothing"
    assert plan.head
    assert set(plan.head) <= set(report.histogram.head)
    foretold = np.array(plan.expected_rows)
    queued = np.array([load.queued_rows for load in report.tasks])
    assert np.abs(queued - foretold).max() < 0.1 * foretold.mean(), "the sample was most of the input"
    assert queued.max() < 1.1 * queued.mean()
