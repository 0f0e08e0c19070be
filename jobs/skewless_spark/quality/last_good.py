"""The last good row of a key in quarantine, which takes its place in the published result (``quality.in_place``)."""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Iterator
from functools import reduce
from operator import and_

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from skewless.documents.job import Job
from skewless.errors import SkewlessError
from skewless.run.publication.publish import Validated
from skewless.spec.part import Part, hours_of, parts_between
from skewless.spec.result import ROW_OF
from skewless_lake.publication import published_run
from skewless_lake.staged import OutputPart
from skewless_spark.sources.locations import output_location
from skewless_spark.sources.uris import quoted
from skewless_spark.states.committed_files import RESULT, read_files

log = logging.getLogger(__name__)

#: A key's row is searched for in so many parts before that of the run: it need not occur in each.
LOOK_BACK = 7


def with_origin(result: DataFrame, job: Job) -> DataFrame:
    """A result with the column ``ROW_OF``, if the spec asks for it: null, unless the result has that column already."""
    lacking = [name for name in job.spec.quality.columns if name not in result.columns]
    return result.withColumns({name: F.lit(None).cast("string") for name in lacking})


def last_good(spark: SparkSession, job: Job, held: DataFrame, like: DataFrame) -> DataFrame | None:
    """For each key of the quarantine the row that the newest earlier part has published; none for a key without one.

    A row that was published in place of another keeps the part that it is of, so a key that fails for a week has the
    row of the day before that week.

    Args:
        like: the result, with its column ``ROW_OF``.

    Returns:
        None if no earlier part can be read.
    """
    found = reduce(DataFrame.unionByName, earlier) if (earlier := list(_earlier(spark, job, like))) else None
    if found is None:
        return None
    keys = job.spec.result_key
    wanted = held.select(*(F.col(quoted(key)).alias(f"k{at}") for at, key in enumerate(keys)))
    same = (F.col(quoted(key)).eqNullSafe(F.col(f"k{at}")) for at, key in enumerate(keys))
    row = F.min_by(F.struct(*(F.col(quoted(name)) for name in like.columns)), "ago").alias("row")
    newest = found.join(wanted, reduce(and_, same), "left_semi").groupBy(*map(quoted, keys)).agg(row)
    return newest.select("row.*")


def _earlier(spark: SparkSession, job: Job, like: DataFrame) -> Iterator[DataFrame]:
    """The published rows of the parts before that of the run, and how many parts ago that was.

    A part is passed over if nobody has published it, if its run was deleted, or if it has other columns.
    """
    wanted = [(field.name, field.dataType) for field in like.schema]
    for ago, part in enumerate(parts_before(job), start=1):
        try:
            location = output_location(job.spec, part, job.root, "job.json")
            run, _ = published_run(OutputPart(job.spec.output, location, job.root, part))
            validated = Validated.of(run)
            files = (validated.verdict if validated.apart else validated.result).of_kind(RESULT)
            rows = with_origin(read_files(spark, run, files), job)
        except (SkewlessError, OSError) as err:
            log.info("no row of %s takes the place of one in quarantine: %s", part, err)
            continue
        if sorted(wanted, key=str) != sorted(((one.name, one.dataType) for one in rows.schema), key=str):
            log.warning("no row of %s takes the place of one in quarantine: it has other columns", part)
            continue
        origin = F.coalesce(F.col(ROW_OF), F.lit(part.name))
        yield rows.withColumns({ROW_OF: origin}).select(*map(quoted, like.columns), F.lit(ago).alias("ago"))


def parts_before(job: Job) -> tuple[Part, ...]:
    """The parts that are searched, newest first: ``LOOK_BACK`` of them."""
    begin = job.date - dt.timedelta(days=1 if job.hour else LOOK_BACK)
    timezone = job.spec.schedule.timezone
    first = Part(begin, hours_of(begin, timezone)[0] if job.hour else None)
    return parts_between(first, job.part, timezone)[-LOOK_BACK - 1 : -1][::-1]
