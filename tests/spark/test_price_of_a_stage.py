"""What a stage costs in Spark whatever its rows: counts, which do not depend on the machine as seconds do."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from skewless.planner.planner import plan_next_stage
from skewless.run.directory import RunDirectory, stage_step
from skewless_spark.engines.stage import run_stage
from skewless_spark.result.merge import merge_states
from skewless_spark.session.versions import here
from skewless_spark.stage.routes import Stage, drawn_queue, routed_queue, unrouted_queue
from skewless_spark.states.committed_files import BACKLOG
from skewless_spark.states.job_columns import JobColumns
from tests.spark.scenario import as_rows, prepared, reduce_job, result_of, spec_of, write_input
from tests.spark.test_pipeline import skewed
from tests.tiers import mostly_long

NATIVE = {"n": "count", "most": {"function": "max", "column": "value"}}
PYTHON = {"histogram": {"function": "streaming_histogram", "column": "value"}}
BOTH = {**NATIVE, **PYTHON}
BUDGET = {"reducers": 4, "waves": [1, 2], "stage_overhead": 0, "first_plan": [], "budget": 1.0}
NO_BUDGET = {"policy": "static", "reducers": 4, "waves": [1, 2], "first_plan": []}

Aggregates = dict[str, Any]


#: The write, and a job for each of two tables that are broadcast: the input's files, and the slots of the ring.
MOST_JOBS = 3


@pytest.mark.parametrize(
    ("aggregates", "routing", "reads"),
    mostly_long(
        [
            (NATIVE, BUDGET, 2),
            (NATIVE, NO_BUDGET, 1),
            (PYTHON, BUDGET, 3),
            (PYTHON, NO_BUDGET, 1),
            (BOTH, BUDGET, 3),
            (BOTH, NO_BUDGET, 2),
        ],
        (BOTH, BUDGET, 3),
    ),
    ids=["native, budget", "native", "python, budget", "python", "both, budget", "both"],
)
def test_a_routed_stage_is_one_query_of_few_jobs(
    spark: SparkSession, few_skewed: Path, tmp_path: Path, aggregates: Aggregates, routing: dict[str, Any], reads: int
) -> None:
    _, reports = reduce_job(spark, spec_of(few_skewed, "key", aggregates, routing=routing), tmp_path / "run")
    for report in reports:
        work = report.work
        assert work
        assert work.executions == (here() >= (4, 0))
        assert work.jobs <= MOST_JOBS
        # Rows take a partition for each of their tasks; a few states in place of rows do not.
        assert work.tasks > len(report.tasks) or (aggregates, routing) == (NATIVE, NO_BUDGET)
        assert 0 < work.shuffle_bytes_read <= (reads + 0.1) * work.shuffle_bytes_written


@pytest.mark.long
def test_a_stage_without_a_wave_reads_what_was_left_over_and_nothing_else(
    spark: SparkSession, few_skewed: Path, tmp_path: Path
) -> None:
    routing = {**BUDGET, "waves": [1]}
    run = prepared(tmp_path, spec_of(few_skewed, "key", NATIVE, routing=routing))
    run_stage(spark, run, 0)
    plan = run.decide(1, plan_next_stage).next_plan
    assert plan is not None
    assert not run.job().admitted_units(plan.waves)
    columns = JobColumns.of(run.job())
    left_over = [file.rows for file in run.committed(stage_step(0)).of_kind(BACKLOG)]
    for queue in (routed_queue, drawn_queue, unrouted_queue):
        rows = queue(Stage(spark, run, columns, plan))
        assert rows.count() == sum(left_over) > 0
        assert "LogicalRDD" not in str(rows._jdf.queryExecution().logical()), "a frame without rows"


@pytest.mark.parametrize("aggregates", mostly_long([NATIVE, PYTHON, BOTH], BOTH), ids=["native", "python", "both"])
def test_a_stage_that_combines_is_one_query_and_reads_what_it_shuffles_once(
    spark: SparkSession, few_skewed: Path, tmp_path: Path, aggregates: Aggregates
) -> None:
    _, (report,) = reduce_job(spark, spec_of(few_skewed, "key", aggregates, engine="combine"), tmp_path / "run")
    assert report.work
    assert (report.work.executions, report.work.jobs) == (here() >= (4, 0), 1)
    assert report.work.shuffle_bytes_read == report.work.shuffle_bytes_written


def jobs_of_merge(spark: SparkSession, run: RunDirectory) -> list[int]:
    """The stages of each Spark job of a merge that is done anew."""
    merged = as_rows(result_of(run))
    (Path(run.root) / "result" / "COMMIT.json").unlink()
    adaptive = spark.conf.get("spark.sql.adaptive.enabled")
    group = f"merge of {run.root}"
    spark.sparkContext.setJobGroup(group, group)
    try:
        merge_states(spark, run)
    finally:
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", "")
    assert spark.conf.get("spark.sql.adaptive.enabled") == adaptive
    assert as_rows(result_of(run)) == merged
    tracker = spark.sparkContext.statusTracker()
    infos = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
    return [len(info.stageIds) for info in infos if info]


@pytest.fixture(scope="module")
def without_null(tmp_path_factory: pytest.TempPathFactory) -> Path:
    table = skewed(10_000)
    return write_input(tmp_path_factory.mktemp("skewed") / "input", table.filter(table["key"].is_valid()), files=8)


@pytest.mark.parametrize(
    ("aggregates", "engine", "waves", "jobs"),
    mostly_long(
        [
            (NATIVE, "combine", [1, 2], []),
            (NATIVE, "staged", [3], []),
            (NATIVE, "staged", [1, 2], [2]),
            (PYTHON, "staged", [1, 2], [2]),
            (BOTH, "staged", [3], [2]),
        ],
        (NATIVE, "combine", [1, 2], []),
    ),
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_merge_runs_no_job_where_the_stage_has_evaluated_and_one_elsewhere(
    spark: SparkSession,
    without_null: Path,
    tmp_path: Path,
    aggregates: Aggregates,
    engine: str,
    waves: list[int],
    jobs: list[int],
) -> None:
    routing = {"policy": "static", "reducers": 4, "waves": waves, "first_plan": []}
    run, _ = reduce_job(
        spark, spec_of(without_null, "key", aggregates, engine=engine, routing=routing), tmp_path / "run"
    )
    assert jobs_of_merge(spark, run) == jobs
