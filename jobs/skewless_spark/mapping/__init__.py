"""The map step: one row in, any number out, before rows are routed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame, SparkSession

from skewless.documents.job import Job
from skewless.spec.input import Map
from skewless_spark.mapping import analyzed_apart, python_mapper, select_list
from skewless_spark.mapping.mapped import Mapped
from skewless_spark.session.connect import connected

__all__ = ["map_types", "mapped_rows", "source_columns"]


def source_columns(job: Job, columns: Sequence[str]) -> Sequence[str]:
    """The input columns that a job reads for some columns of its rows."""
    return columns if job.spec.map is None else job.source.reads


def map_types(spark: SparkSession | None, given: Map, types: Mapping[str, str], at: str) -> Mapped:
    """Hold a map to the columns of its input.

    Args:
        spark: to analyze a select list with; a mapper needs none.
        given: the spec's section.
        types: Spark SQL type of each input column.
        at: where, for messages.

    Raises:
        SpecError: it says nothing that may be run.
        InputError: it reads a column that is not there.
    """
    if given.select is None or spark is None:
        return python_mapper.types_of(given, types, at)
    # Spark's parser and analyzer are in a JVM, which a client has not.
    return analyzed_apart.types_of(given, types, at) if connected() else select_list.types_of(spark, given, types, at)


def mapped_rows(
    spark: SparkSession,
    job: Job,
    rows: DataFrame,
    names: Sequence[str],
    columns: Sequence[str],
    origin: str,
    index: str,
) -> DataFrame:
    """Map rows.

    Args:
        spark: the session.
        job: the frozen job.
        rows: ``s0``, ``s1``, ... and the origin.
        names: what the numbered columns are called in the input.
        columns: the mapped columns that are wanted; they come back as ``c0``, ``c1``, ...
        origin: name of the column with the origin of a row; a mapped row has that of its source row.
        index: name of the column for the place of a mapped row among those of its source row.
    """
    given = job.spec.map
    if given is None:
        raise ValueError("the job has no map")
    if given.select is None:
        types = {**job.key_types, **job.column_types}
        return python_mapper.apply(given, rows, names, columns, types, origin, index)
    selected = job.source.selected or select_list.selected_of(spark, given)
    return select_list.apply(given, selected, rows, names, columns, origin, index)
