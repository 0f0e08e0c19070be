"""What is measured of input splits and told of a running step, and that the command says where nobody measured."""

import re
import time
import timeit
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from skewless.bounds import NOT_MEASURED, run_certificate
from skewless.documents.job import Job
from skewless.documents.stage_report import EngineChoice
from skewless.errors import PlanError
from skewless.planner.engine_choice import plan_of_choice
from skewless.planner.first_plan import first_plan
from skewless.routing.plan import RoutingPlan
from skewless.run.directory import RunDirectory
from skewless_cli import run_view, views
from skewless_spark.session.step_measures import JobsSeen, StepProgress
from tests.spark.scenario import shown
from tests.unit.synthetic import job, report


def run_of_one_stage(folder: Path, frozen: Job, plan: RoutingPlan, reported: Mapping[str, Any]) -> RunDirectory:
    run = RunDirectory(str(folder))
    run.write_once("job.json", frozen)
    run.write_once("plans/0000.json", plan)
    attempt = run.new_attempt("stages/0000")
    attempt.write("report.json", report(plan, {"the": 1_000}).model_copy(update=reported))
    attempt.commit([], {"processed": 1_000})
    return run


def test_a_run_that_nobody_measured_is_told_as_not_measured_and_not_replayed(tmp_path: Path) -> None:
    """An older release ran its stage with engine ``combine``, and counted neither splits nor keys."""
    frozen = job([1_000], reducers=4)
    plan = plan_of_choice(frozen, first_plan(frozen), EngineChoice(engine="combine", sentence="combine"))
    nothing = report(plan, {"the": 1_000}).histogram.model_copy(update={"seen_rows": 0, "head": {}})
    run = run_of_one_stage(tmp_path / "run", frozen, plan, {"tasks": (), "histogram": nothing})
    (line,) = run_view.stage_lines(run)
    assert line.items() >= {"engine": "combine", "max_over_mean": None, "gap_to_bound": None}.items()
    told = run_view.as_object(run)["certificate"]
    assert (told["gap"], told["makespan_rows"], told["conclusion"]) == (None, None, NOT_MEASURED)
    text = shown(run)
    assert "together not measured, fair share 250 rows: not measured" in text
    assert not re.search(r"balanced|0\.0%", text)
    assert run_certificate(run.job(), run.reports()).gap is None
    with pytest.raises(PlanError, match="not measured"):
        views.replay_as_object(run, ["static"])


def test_the_tasks_of_a_stage_are_told_without_a_wait_for_an_acknowledgement(spark: SparkSession) -> None:
    seen = JobsSeen(spark)
    spark.range(0, 40, 1, 40).write.format("noop").mode("overwrite").save()
    (stage,) = seen.stages(seen.jobs())
    assert {task["index"] for task in seen.tasks(stage)} == set(range(40))
    assert min(timeit.repeat(lambda: seen.tasks(stage), number=1, repeat=9)) < 0.03


def test_a_running_step_says_how_much_is_done(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    def slowly(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            time.sleep(0.5)
            yield batch

    rows = spark.range(0, 4_000, 1, 4).repartition(8).mapInArrow(slowly, "id bigint")
    with StepProgress(spark, "busy", 4_000, seconds=0.05) as progress:
        rows.write.format("noop").mode("overwrite").save()
        JobsSeen(spark).jobs()  # waits until Spark has recorded that the job has ended
        assert progress.line() == "busy: between two Spark jobs"
    assert re.search(r"(?m)^skewless: busy: [1-7] of 8 tasks, [1-9][\d,]* of 4,000 rows$", capsys.readouterr().out)
