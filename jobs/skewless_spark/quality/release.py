"""Lets keys in that are in quarantine: a new publication of their day, which holds them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import reduce
from operator import and_, or_
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from skewless.documents.quality import Quarantine
from skewless.errors import LedgerError, LostRaceError, SpecError
from skewless.run.directory import QUALITY_REPORT, QUALITY_STEP, RunDirectory
from skewless.run.publication.publish import Validated
from skewless.run.publication.records import Publication, record_of
from skewless.run.publication.release import begin_release, keys_named
from skewless.spec.result import QUARANTINE_COLUMNS
from skewless_lake.publication import next_turn
from skewless_lake.staged import staged_parts
from skewless_spark.quality.last_good import with_origin
from skewless_spark.quality.quarantine import Split, balance_of_keys, split
from skewless_spark.result.publishing import publish_now
from skewless_spark.result.staging import stage_apart
from skewless_spark.sources.uris import quoted
from skewless_spark.states.committed_files import QUARANTINED, RESULT, read_files

Key = tuple[str | None, ...]


class Released(NamedTuple):
    """How a release went: how many keys it let in, how many stay in quarantine, and where it was published."""

    keys: int
    left: int
    publication: Publication | None
    run: RunDirectory


def release(
    session: Callable[[], SparkSession], run: RunDirectory, given: Sequence[str], group: str, shown: str = ""
) -> Released:
    """Publish the day of a run once more, with keys that are in quarantine: all of them if none is named.

    It may be killed and called again at any moment: it goes on, and what it has published it does not publish twice.

    Args:
        session: gives a session of Spark, which only a release of some keys needs.
        given: keys, as ``keys_named`` takes them.
        shown: see ``begin_release``.

    Raises:
        SpecError: a key is neither in quarantine nor published.
    """
    job, before, held = run.job(), Validated.of(run), _held(run)
    if record_of(run) is None:
        publish_now(run)  # what lies in the folder is of this run: it was killed before its record
    if not held.keys:
        return Released(0, 0, None, run)
    keys = keys_named(given, len(job.spec.key))
    if keys and not _some_in_quarantine(session(), run, before, keys):
        return Released(0, held.keys, None, run)
    files = (*before.verdict.of_kind(QUARANTINED), *before.result.files)
    if any(not run.exists(file.path) for file in files):
        raise SpecError.saying(f"run {run}", "files of its result are gone, by a prune perhaps", "run the day again")
    into = begin_release(run, keys, next_turn, group, shown)
    if into.commit_of(QUALITY_STEP) is None:
        with suppress(LostRaceError):  # another release of the same keys has committed first
            _let_in(session, run, before, into, keys)
    left = _held(into).keys
    return Released(held.keys - left, left, publish_now(into), into)


def _held(run: RunDirectory) -> Quarantine:
    """What a run has in quarantine."""
    return Validated.of(run).report.quarantine or Quarantine(keys=0)


def _some_in_quarantine(spark: SparkSession, run: RunDirectory, before: Validated, keys: Sequence[Key]) -> bool:
    """Whether some of these keys are in quarantine; all others must be published."""
    names = run.job().spec.key
    found = _named(read_files(spark, run, before.verdict.of_kind(QUARANTINED)), names, keys)
    missing = [key for key in keys if key not in found]
    if missing:
        known = _named(read_files(spark, run, before.verdict.of_kind(RESULT)), names, missing)
        if unknown := [key for key in missing if key not in known]:
            some = ", ".join(repr(key[0] if len(key) == 1 else [*key])[:80] for key in unknown[:3])
            raise SpecError(
                "KEY", f"keys in quarantine in {run}", some, "name them as its files of _quarantine have them"
            )
    return bool(found)


def _named(frame: DataFrame, names: Sequence[str], keys: Sequence[Key]) -> set[Key]:
    """Which of some keys are in a frame: no more reach the driver than were named."""
    texts = [F.col(quoted(name)).cast("string") for name in names]
    return {tuple(row) for row in frame.where(_among(names, keys)).select(*texts).distinct().collect()}


def _among(names: Sequence[str], keys: Sequence[Key]) -> Column:
    """Whether the key of a row is one of these; null is a key as any other."""
    texts = [F.col(quoted(name)).cast("string") for name in names]
    each = (zip(texts, key, strict=True) for key in keys)
    return reduce(or_, (reduce(and_, (text.eqNullSafe(F.lit(one)) for text, one in pairs)) for pairs in each))


def _let_in(
    session: Callable[[], SparkSession], run: RunDirectory, before: Validated, into: RunDirectory, keys: Sequence[Key]
) -> None:
    job, report, held = run.job(), before.report, _held(run)
    attempt, left = into.new_attempt(QUALITY_STEP), Split((), report.keys, 0, None if held.rows is None else 0)
    if keys or job.spec.quality.columns:
        spark, names = session(), job.spec.result_key
        stay = read_files(spark, run, before.verdict.of_kind(QUARANTINED))
        stay = stay.where(~_among(job.spec.key, keys) if keys else F.lit(False))
        stay = stay.select(*(F.col(quoted(name)).alias(f"k{at}") for at, name in enumerate(names)), *QUARANTINE_COLUMNS)
        result = with_origin(read_files(spark, run, before.result.of_kind(RESULT)), job)
        same = (result[quoted(name)].eqNullSafe(stay[f"k{at}"]) for at, name in enumerate(names))
        marked = result.join(stay, reduce(and_, same), "left").select(result["*"], *QUARANTINE_COLUMNS)
        left = split(spark, attempt, job, marked)
    if left.kept + left.held != report.keys:
        came = f"{left.kept:,} to be published and {left.held:,} in quarantine"
        raise LedgerError(f"release of {run}", f"{report.keys:,} keys of the result", came, "nothing was published")
    quarantine = left.quarantine(held.released + held.keys - left.held)
    balance = balance_of_keys(left.kept, left.held, report.keys)
    checks = tuple(balance if one.expectation == balance.expectation else one for one in report.checks)
    if job.spec.output.is_table:
        stage_apart(into, attempt, left.files, staged_parts(run)[-1][1].rules)
    attempt.write(QUALITY_REPORT, report.model_copy(update={"quarantine": quarantine, "checks": checks}))
    attempt.commit(left.files, {"checks": len(report.checks), "failed": 0})
