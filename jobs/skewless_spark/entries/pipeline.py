"""The whole pipeline in one Spark session: the same steps that Airflow runs one by one."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from pyspark.sql import SparkSession

from skewless.documents.decision import Decision
from skewless.documents.quality import QualityReport
from skewless.documents.stage_report import StageReport
from skewless.planner.planner import plan_next_stage
from skewless.run.directory import RunDirectory
from skewless.run.publication.publish import require_passed
from skewless.run.publication.records import Publication
from skewless_spark.engines.stage import run_stage
from skewless_spark.quality.expectations import import_soon
from skewless_spark.quality.validate import validate
from skewless_spark.result.merge import merge_states
from skewless_spark.result.publishing import publish_now
from skewless_spark.session.step_times import spark_jobs, spark_step


class Watcher(Protocol):
    """Follows the progress of a run."""

    def step(self, name: str) -> None:
        """Called when a step begins."""

    def stage_done(self, report: StageReport, decision: Decision) -> None:
        """Called when a stage is committed and the decision after it has been made."""


class Silent:
    """A watcher that shows nothing."""

    def step(self, name: str) -> None:
        """Nothing."""

    def stage_done(self, report: StageReport, decision: Decision) -> None:
        """Nothing."""


class Finished(NamedTuple):
    """The outcome of a run."""

    quality: QualityReport
    publication: Publication


def run_pipeline(spark: SparkSession, run: RunDirectory, watcher: Watcher) -> Finished:
    """Run a prepared job to its end, starting after its last commit."""
    import_soon()
    run_stages(spark, run, watcher)
    return finish_run(spark, run, watcher)


def finish_run(spark: SparkSession, run: RunDirectory, watcher: Watcher) -> Finished:
    """Merge, validate and publish a run whose stages are committed.

    Raises:
        QualityError: the result failed validation; nothing was published.
    """
    import_soon()
    watcher.step("merge")
    with spark_step(run, "merge"), spark_jobs(spark):
        merge_states(spark, run)
    watcher.step("validate")
    with spark_step(run, "validate"), spark_jobs(spark):
        quality = validate(spark, run)
    require_passed(run, quality)
    watcher.step("publish")
    with spark_step(run, "publish"):
        return Finished(quality, publish_now(run))


def run_stages(spark: SparkSession, run: RunDirectory, watcher: Watcher) -> None:
    """Run the stages of a prepared job and decide after each, until no further stage is needed."""
    stage = 0
    while True:
        watcher.step(f"stage {stage}")
        with spark_step(run, f"stage {stage}"), spark_jobs(spark):
            report = run_stage(spark, run, stage)
        with spark_step(run, f"decision {stage + 1}"):
            decision = run.decide(stage + 1, plan_next_stage)
        watcher.stage_done(report, decision)
        if decision.next_plan is None:
            return
        stage += 1
