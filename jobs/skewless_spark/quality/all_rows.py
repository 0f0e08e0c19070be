"""What a window gives without the choices of a night: from all of its rows, or from the states of all of its parts."""

from __future__ import annotations

from functools import reduce

from pyspark.sql import DataFrame, SparkSession

from skewless.documents.job import Job
from skewless.run.directory import RunDirectory
from skewless.standing.store import StatesStore
from skewless_spark.branches import PLACE, evaluate, merges_kept
from skewless_spark.result.merge import evaluated_rows
from skewless_spark.sources.identity import require_unchanged
from skewless_spark.sources.reading import read_units
from skewless_spark.states.columns import JobColumns
from skewless_spark.states.committed_files import read_files
from skewless_spark.windows.jobs_of_all_rows import job_of_all_rows, jobs_of_all_rows
from skewless_spark.windows.nodes import with_window


def results_of_all_rows(spark: SparkSession, job: Job) -> DataFrame:
    """The results of all rows of the job, or of each window, by one pass of plain Spark.

    Raises:
        InputError: a file has changed since the run was prepared.
    """
    of_job, found = JobColumns.of(job), []
    for whole, length in jobs_of_all_rows(job):
        ordinals = range(len(whole.units))
        require_unchanged(whole, ordinals)
        columns = JobColumns.of(whole)
        rows = read_units(spark, whole, ordinals, columns.inputs)
        # Each partition has all rows of its keys, in the order of the input.
        placed = rows.repartition(job.spec.output.files, *columns.keys)
        results = evaluated_rows(placed.sortWithinPartitions(*columns.keys, *columns.origins), columns)
        found.append(with_window(of_job, results, length))
    return reduce(DataFrame.unionAll, found)


def results_of_all_states(spark: SparkSession, run: RunDirectory) -> DataFrame:
    """The results of the newest states of all parts of each window, merged by one query.

    Args:
        run: with a window, whose result is committed, and with states that nobody else adds to.
    """
    columns = JobColumns.of(run.job())
    window, found = columns.window, list[DataFrame]()
    store = StatesStore(window.store)
    newest = [store.newest(part.name)[0] for part in window.parts]
    for span in window.windows:
        files = [file for one in newest[span.first :] if one is not None for file in one.version.states]
        if files:
            merged = _merged(read_files(spark, store, files), columns)
            found.append(evaluate(with_window(columns, merged, span.length), columns, told=True))
    if found:
        return reduce(DataFrame.unionAll, found)
    nothing = JobColumns.of(job_of_all_rows(columns.job, len(window.parts)))
    results = evaluated_rows(read_units(spark, nothing.job, (), nothing.inputs), nothing)
    return with_window(columns, results, None)


def _merged(states: DataFrame, columns: JobColumns) -> DataFrame:
    """The states of each key as one, in the order of parts; several of one part are told apart by their rows."""
    keyed = states.repartition(columns.job.spec.output.files, *columns.keys)
    in_order = keyed.sortWithinPartitions(*columns.keys, PLACE, "rows")
    return in_order.groupBy(*columns.keys).agg(*merges_kept(states, columns))
