"""How many tasks of Spark a stage is cut into: few, whatever it reads, and whichever engine reads it."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from skewless.documents.stage_report import Decision, EngineChoice, StageReport
from skewless.planner.engine_choice import plan_of_choice
from skewless.planner.planner import plan_next_stage
from skewless.run.directory import RunDirectory, stage_step
from skewless_spark.engines import ENGINES
from skewless_spark.engines.stage import run_stage
from skewless_spark.states.committed_files import BACKLOG
from tests.spark.scenario import prepared, spec_of, write_input
from tests.tiers import mostly_long

SLOTS = 4
#: Two splits of what is read for each slot, of both tables that may be read, and the tasks of the plan.
MOST_TASKS = 2 * 2 * SLOTS + 4
ROUTING = {"reducers": 4, "slots": SLOTS, "stage_overhead": 0, "first_plan": [], "budget": 1.0}
#: Half of the rows have one key, so that its task has a backlog.
ROWS, KEYS = 2_000, 8


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skewless_spark.sources.cutting.CUT_BYTES", 1 << 18)


def write_rows(folder: Path) -> None:
    keys = [f"k{row % KEYS if row % 2 else 0}" for row in range(ROWS)]
    write_input(folder, pa.table({"key": keys, "value": pa.array(range(ROWS), pa.int64())}), files=8)


def go_on(run: RunDirectory, engine: str) -> Decision:
    def planner(job: Any, plan: Any, report: Any, earlier: Any) -> Decision:
        decision = plan_next_stage(job, plan, report, earlier)
        if engine == "staged":
            return decision
        choice = EngineChoice(engine=engine, sentence=engine)
        here = plan.model_copy(update={"epoch": 1})
        return decision.model_copy(update={"engine": choice, "next_plan": plan_of_choice(job, here, choice)})

    return run.decide(1, planner)


def tasks_of(report: StageReport) -> int:
    assert report.work is not None
    return report.work.tasks


@pytest.mark.parametrize("engine", mostly_long(ENGINES, "staged"))
@pytest.mark.parametrize("waves", mostly_long([[1], [1, 1]], [1, 1]), ids=["a backlog", "whole files and a backlog"])
def test_a_stage_has_few_tasks(spark: SparkSession, tmp_path: Path, engine: str, waves: list[int]) -> None:
    write_rows(tmp_path / "input")
    total = {"total": {"function": "sum", "column": "value"}}
    spec = spec_of(tmp_path / "input", "key", total, routing={**ROUTING, "waves": waves})
    run = prepared(tmp_path, spec)
    first = run_stage(spark, run, 0)
    assert run.committed(stage_step(0)).of_kind(BACKLOG)
    plan = go_on(run, engine).next_plan
    assert plan is not None
    assert (plan.engine, plan.waves) == (engine, (1, len(waves)))
    second = run_stage(spark, run, 1)
    assert second.backlog_in_rows == first.backlog_rows > 0
    assert first.processed_rows + second.processed_rows + second.backlog_rows == ROWS
    assert max(tasks_of(first), tasks_of(second)) <= MOST_TASKS
