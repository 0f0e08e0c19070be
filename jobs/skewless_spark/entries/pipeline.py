"""The whole pipeline in one Spark session: the same steps that Airflow runs one by one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from pyspark.sql import SparkSession

from skewless.documents.comparison import Comparison
from skewless.documents.decision import Decision
from skewless.documents.quality import QualityReport
from skewless.documents.stage_report import StageReport
from skewless.planner.planner import plan_next_stage
from skewless.publication.publish import require_passed
from skewless.publication.records import Publication
from skewless.run.directory import RunDirectory
from skewless.run.step_names import COMPARE, PUBLISH, last_step_of
from skewless_spark.comparison.compare import compare_shadow
from skewless_spark.engines.stage import run_stage
from skewless_spark.quality.expectations import import_soon
from skewless_spark.quality.validate import validate
from skewless_spark.result.merge import merge_states, publish_now
from skewless_spark.session.step_measures import spark_jobs, spark_step

#: Is told of each stage once it is committed and the decision after it has been made.
Watcher = Callable[[StageReport, Decision], None]


def unwatched(_report: StageReport, _decision: Decision) -> None:
    """The watcher of a run that nobody follows."""


class Finished(NamedTuple):
    """The outcome of a run: what its last step has made."""

    quality: QualityReport
    outcome: Publication | Comparison

    @property
    def publication(self) -> Publication:
        """The outcome of a run that publishes."""
        if not isinstance(self.outcome, Publication):
            raise TypeError(f"this run has compared its result, and published none: {self.outcome.verdict}")
        return self.outcome


def _publish(_spark: SparkSession, run: RunDirectory) -> Publication:
    return publish_now(run)


def _compare(spark: SparkSession, run: RunDirectory) -> Comparison:
    with spark_jobs(spark):
        return compare_shadow(spark, run)


#: What the last step of a run does, by its name.
LAST_STEPS: Mapping[str, Callable[[SparkSession, RunDirectory], Publication | Comparison]] = {
    PUBLISH.name: _publish,
    COMPARE.name: _compare,
}


def run_pipeline(spark: SparkSession, run: RunDirectory, watcher: Watcher = unwatched) -> Finished:
    """Run a prepared job to its end, starting after its last commit."""
    import_soon()
    run_stages(spark, run, watcher)
    return finish_run(spark, run)


def finish_run(spark: SparkSession, run: RunDirectory) -> Finished:
    """Merge and validate a run whose stages are committed, and do its last step: publish it, or compare it.

    Raises:
        QualityError: the result failed validation, or differs where it must not; nothing was published.
    """
    import_soon()
    with spark_step(run, "merge"), spark_jobs(spark):
        merge_states(spark, run)
    with spark_step(run, "validate"), spark_jobs(spark):
        quality = validate(spark, run)
    require_passed(run, quality)
    last = last_step_of(run.job().spec).name
    with spark_step(run, last):
        return Finished(quality, LAST_STEPS[last](spark, run))


def run_stages(spark: SparkSession, run: RunDirectory, watcher: Watcher = unwatched) -> None:
    """Run the stages of a prepared job and decide after each, until no further stage is needed."""
    stage = 0
    while True:
        with spark_step(run, f"stage {stage}"), spark_jobs(spark):
            report = run_stage(spark, run, stage)
        with spark_step(run, f"decision {stage + 1}"):
            decision = run.decide(stage + 1, plan_next_stage)
        watcher(report, decision)
        if decision.next_plan is None:
            return
        stage += 1
