"""The map step: one row in, any number out, before rows are routed."""

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame, SparkSession

from skewless.documents.job import Job
from skewless.spec.calls import Map
from skewless_spark.mapping import python_mapper, query_mapper
from skewless_spark.mapping.query_mapper import Mapped

__all__ = ["map_types", "mapped_rows", "source_columns"]


def source_columns(job: Job, columns: Sequence[str]) -> Sequence[str]:
    """The input columns that a job reads to get these columns of its rows."""
    return columns if job.spec.map is None else job.source.reads


def map_types(
    spark: SparkSession | None, given: Map, types: Mapping[str, str], lookups: Mapping[str, Mapping[str, str]], at: str
) -> Mapped:
    """Check a map against the columns of its input and its lookups.

    Args:
        spark: analyzes a query; a mapper needs no session.
    """
    if given.sql is None or spark is None:
        return python_mapper.types_of(given, types, at)
    return query_mapper.types_of(spark, given.sql, types, lookups, at)


def mapped_rows(
    job: Job, rows: DataFrame, names: Sequence[str], columns: Sequence[str], origin: str, index: str,
    lookups: Mapping[str, DataFrame],
) -> DataFrame:  # fmt: skip
    """Map rows.

    Args:
        rows: the input columns as ``s0``, ``s1``, ... and the origin.
        names: the names of the numbered columns in the input.
        columns: the requested mapped columns, which are returned as ``c0``, ``c1``, ...
        origin: the name of the column with the origin of a row; a mapped row has the origin of its source row.
        index: the name of the column for the number of a mapped row among the rows of its source row, from 0.
        lookups: what the rows are joined to, with columns by their own names.
    """
    given = job.spec.map
    if given is None:
        raise ValueError("the job has no map")
    if given.sql is None:
        types = {**job.key_types, **job.column_types}
        return python_mapper.apply(given, rows, names, columns, types, origin, index)
    return query_mapper.apply(given.sql, rows, names, columns, origin, index, lookups)
