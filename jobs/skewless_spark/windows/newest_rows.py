"""The newest row of each part that was read tonight, by a time column of the input: ``quality.freshness``."""

from __future__ import annotations

import datetime as dt
import logging

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from skewless.documents.window import NewestRow
from skewless.errors import SkewlessError
from skewless_spark.session.spark_errors import sentence_for
from skewless_spark.sources import require_unchanged, source_rows
from skewless_spark.states.columns import PART, JobColumns

log = logging.getLogger(__name__)

#: What reading a column of files may end with that have been changed or removed since the stages.
_HINDERS = (ValueError, OverflowError, OSError, pa.ArrowException, PySparkException, Py4JError, SkewlessError)


def newest_rows(spark: SparkSession, columns: JobColumns) -> dict[int, NewestRow]:
    """The newest of tonight's rows of each part, by the part's position, before a map.

    A query of its own over that one column: it need not be a column that states are made of, and a maximum that is
    observed in the stage's query is kept row by row, which takes longer.

    A night does not fail for it: if a file was changed or removed since the stages, or has a date that Python does
    not know, a warning says that it is not measured.

    Returns:
        None of parts of which nothing was read; empty if the spec names no column, or where it is not measured.
    """
    job, column = columns.job, columns.job.spec.quality.freshness
    if column is None or not job.units or job.window is None:
        return {}
    ordinals = range(len(job.units))
    try:
        rows = source_rows(spark, job, ordinals, [column], located=columns.tells_parts)
        found = rows.selectExpr("s0", *columns.parted).groupBy(PART).agg(F.max("s0").alias("newest")).toArrow()
        newest = dict(zip(found[PART].to_pylist(), map(_moment, found["newest"].to_pylist()), strict=True))
        require_unchanged(job, ordinals)
    except _HINDERS as err:
        log.warning("the newest rows are not measured: %s", sentence_for(err))
        return {}
    return {at: NewestRow(column=column, at=newest.get(at)) for at in job.window.reduced}


def _moment(value: dt.date | None) -> dt.datetime | None:
    """A timestamp, in UTC if it has a zone; of a day, its beginning."""
    if value is None:
        return None
    if not isinstance(value, dt.datetime):
        return dt.datetime.combine(value, dt.time())
    return value if value.tzinfo is None else value.astimezone(dt.UTC)
