"""Counts what a spec expects of its input and no footer tells, in a pass over the columns that it asks for."""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from skewless.documents.job import InputFacts, Job
from skewless.history.input_checks import asked_columns, asks_rows
from skewless_spark.session.session import build_session
from skewless_spark.sources.formats.spark_types import UNSUPPORTED
from skewless_spark.sources.listing import Listing
from skewless_spark.sources.reading import source_rows
from skewless_spark.sources.uris import FILE_COLUMNS

#: Formats whose files tell neither rows nor nulls, or no nulls.
UNTOLD = ("csv", "json", "orc", "text")


def uncounted(job: Job, facts: InputFacts, listing: Listing) -> tuple[str, ...]:
    """The columns whose nulls are asked for and not known, or one to count rows by if these are; else none."""
    types = {one: kind for one, kind in listing.types.items() if one not in FILE_COLUMNS}
    readable = [one for one, kind in types.items() if not kind.startswith(UNSUPPORTED)]
    nulls = [one for one, asked in asked_columns(job.spec).items() if asked and one in readable]
    lacking = tuple(one for one in nulls if one not in facts.nulls)
    by_rows = [one for one in readable if one in job.source.columns] or readable
    return lacking or (tuple(by_rows[:1]) if facts.rows is None and asks_rows(job.spec) else ())


def counted(job: Job, facts: InputFacts, columns: tuple[str, ...], before: int, master: str | None) -> InputFacts:
    """The facts with what Spark counts.

    Args:
        job: with the files and columns that are counted.
        before: rows of the part that need not be read, as its states are kept.
        master: of Spark, if this process has no session.
    """
    if not job.units:
        return facts.model_copy(update={"nulls": {**facts.nulls, **dict.fromkeys(columns, 0)}, "rows": before})
    spark = SparkSession.getActiveSession() or build_session(f"skewless {job.spec.name}", master)
    read = source_rows(spark, job, range(len(job.units)), columns, located=False)
    null = [F.count_if(F.col(f"s{number}").isNull()) for number in range(len(columns))]
    rows, *nulls = read.agg(F.count(F.lit(1)), *null).collect()[0]
    told = {**dict(zip(columns, nulls, strict=True)), **facts.nulls}
    return facts.model_copy(update={"nulls": told, "rows": before + rows})
