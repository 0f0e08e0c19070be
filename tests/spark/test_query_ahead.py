"""The query of a stage that was built while the decision about it was made: it is the same, or it is not used."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from skewless.errors import RunDirectoryError
from skewless.planner.planner import plan_next_stage
from skewless.run.directory import RunDirectory, stage_step
from skewless_spark.engines import stage as stages
from skewless_spark.engines.stage import StageQuery, run_stage
from skewless_spark.entries import run_stage as entry
from skewless_spark.prepare.prepare import prepare
from tests.spark.scenario import DATE, spec_of, without_times
from tests.tiers import mostly_long

NATIVE = {"n": "count", "most": {"function": "max", "column": "value"}}
PYTHON = {"histogram": {"function": "streaming_histogram", "column": "value"}}
ROUTING = {"reducers": 4, "waves": [1, 2], "stage_overhead": 0, "first_plan": [], "budget": 1.0}


def after_a_stage(
    spark: SparkSession, source: Path, folder: Path, aggregates: dict[str, Any], **fields: Any
) -> tuple[RunDirectory, StageQuery]:
    """A run whose first stage has committed, and the query of the next, of which nothing is decided yet."""
    run = RunDirectory(str(folder))
    prepare(run, spec_of(source, "key", aggregates, routing=ROUTING, **fields), DATE, str(folder.parent))
    run_stage(spark, run, 0)
    entry.look_ahead(["--run-dir", str(run), "--stage", "0"])
    assert not run.exists("plans/0001.json")
    assert not run.exists("decisions/0001.json")
    return run, entry._AHEAD.pop(str(run))


CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "native": (NATIVE, {}),
    "native and python": ({**NATIVE, **PYTHON}, {}),
    # Rows are counted while they are read.
    "with a map": (NATIVE, {"map": {"select": ["key", "value"], "where": "value >= 0"}}),
    "states that go with their keys": (PYTHON, {"state": "forward"}),
}


@pytest.mark.parametrize("case", mostly_long(CASES, "native and python"))
def test_a_stage_has_the_same_outcome_with_the_query_that_was_built_ahead(
    spark: SparkSession, few_skewed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    aggregates, fields = CASES[case]
    ahead, _ = after_a_stage(spark, few_skewed, tmp_path / "ahead", aggregates, **fields)
    usual, _ = after_a_stage(spark, few_skewed, tmp_path / "usual", aggregates, **fields)
    for run in (ahead, usual):
        assert run.decide(1, plan_next_stage).next_plan is not None
    expected = run_stage(spark, usual, 1)
    entry.look_ahead(["--run-dir", str(ahead), "--stage", "0"])
    monkeypatch.setattr(stages, "_query", None)  # nothing builds another query
    found = run_stage(spark, ahead, 1, entry._AHEAD.pop(str(ahead)))
    assert without_times(found) == without_times(expected)
    assert found.work is not None
    assert expected.work is not None
    assert (found.work.executions, found.work.jobs) == (1, expected.work.jobs)


@pytest.mark.long
def test_a_query_of_another_plan_is_not_used(spark: SparkSession, few_skewed: Path, tmp_path: Path) -> None:
    run, ahead = after_a_stage(spark, few_skewed, tmp_path / "run", NATIVE)
    decided = plan_next_stage(run.job(), run.plan(0), run.report(0), [])
    assert decided.next_plan is not None
    narrow = decided.next_plan.model_copy(update={"budget_rows": 1})
    run.enact(decided.model_copy(update={"next_plan": narrow}))
    report = run_stage(spark, run, 1, ahead)
    assert report.processed_rows == sum(task.queued_rows > 0 for task in report.tasks)


@pytest.mark.long
def test_a_query_over_a_stage_that_was_done_anew_is_not_used(
    spark: SparkSession, few_skewed: Path, tmp_path: Path
) -> None:
    run, ahead = after_a_stage(spark, few_skewed, tmp_path / "run", NATIVE)
    shutil.rmtree(run.path(stage_step(0)))
    again = run_stage(spark, run, 0)
    assert run.decide(1, plan_next_stage).next_plan is not None
    assert run_stage(spark, run, 1, ahead).backlog_in_rows == again.backlog_rows > 0


@pytest.mark.long
def test_a_file_that_was_changed_since_the_query_was_built_is_refused(
    spark: SparkSession, few_skewed: Path, tmp_path: Path
) -> None:
    run, ahead = after_a_stage(spark, few_skewed, tmp_path / "run", NATIVE)
    assert run.decide(1, plan_next_stage).next_plan is not None
    left_over = run.committed(stage_step(0)).of_kind("backlog")[0]
    path = Path(run.path(left_over.path))
    path.write_bytes(path.read_bytes() + b"more")
    with pytest.raises(RunDirectoryError, match="bytes that was committed"):
        run_stage(spark, run, 1, ahead)


@pytest.mark.long
def test_a_run_without_a_next_stage_has_no_query_for_one(spark: SparkSession, few_skewed: Path, tmp_path: Path) -> None:
    run, routing = RunDirectory(str(tmp_path / "run")), {"policy": "static", "waves": [1], "reducers": 4}
    prepare(run, spec_of(few_skewed, "key", NATIVE, routing=routing), DATE, str(tmp_path))
    run_stage(spark, run, 0)
    assert plan_next_stage(run.job(), run.plan(0), run.report(0), []).next_plan is None
    entry.look_ahead(["--run-dir", str(run), "--stage", "0"])
    assert not entry._AHEAD
