"""The last step of a run in the shadow of another job: it compares the two results instead of publishing one."""

from __future__ import annotations

import logging

from pyspark.sql import SparkSession

from skewless.documents.comparison import Comparison
from skewless.errors import LostRaceError, RunDirectoryError
from skewless.run.directory import COMPARISON_REPORT, COMPARISON_STEP, Fence, RunDirectory
from skewless.spec.shadow import Shadow, is_query
from skewless.spec.spec import JobSpec
from skewless_lake.replays import keep_savings
from skewless_spark.comparison.compare import compare, compared_columns
from skewless_spark.comparison.other_side import FIELD, other_side, require_parsed
from skewless_spark.session.session import build_session
from skewless_spark.session.step_lease import leased_step

log = logging.getLogger(__name__)

#: So many keys that differ are named.
WORST = 10


def compare_shadow(spark: SparkSession, run: RunDirectory) -> Comparison:
    """Compare the committed result of a run with the one that its spec names, unless that has been done.

    Returns:
        The committed comparison: of this attempt, or of the attempt that committed first.

    Raises:
        InputError: there is no such other result, or it has other keys.
        QualityError: the results differ, and the spec says that this fails the run; the comparison is committed.
        RunDirectoryError: the result is not committed, or the run is to be published.
    """
    shadow = run.job().spec.shadow
    if shadow is None:
        raise RunDirectoryError.saying(
            f"run {run}", "it was begun with a spec without shadow, so its result is to be published", "begin a new run"
        )
    found = run.comparison()
    if found is None:
        with leased_step(run, COMPARISON_STEP) as fence:
            found = run.comparison() or _compare(spark, run, shadow, fence)
    keep_savings(run)
    found.require_allowed(shadow, f"comparison of {run}")
    return found


def check_shadow(spec: JobSpec, where: str) -> None:
    """Refuse a query that cannot be parsed, in a spec that has one; Spark starts only for that.

    Raises:
        SpecError: says where Spark stumbles.
    """
    if spec.shadow is not None and is_query(spec.shadow.other):
        spark = SparkSession.getActiveSession() or build_session(f"skewless check {spec.name}")
        require_parsed(spark, spec.shadow.other, f"{where}, field {FIELD}")


def _compare(spark: SparkSession, run: RunDirectory, shadow: Shadow, fence: Fence | None) -> Comparison:
    job = run.job()
    theirs = other_side(spark, shadow.other, job.part, job.root, compared_columns(run, spark), FIELD)
    found = compare(spark, run, theirs, shadow.tolerance, WORST)
    attempt = run.new_attempt(COMPARISON_STEP, fence)
    attempt.write(COMPARISON_REPORT, found)
    try:
        attempt.commit([], {"keys": found.keys, "differ": found.differ})
    except LostRaceError as err:
        log.warning("%s", err)
        return run.committed_document(run.committed(COMPARISON_STEP), COMPARISON_REPORT, Comparison)
    return found
