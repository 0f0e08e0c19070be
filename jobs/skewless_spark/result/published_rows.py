"""What is published of keys and aggregates: ``result`` of a spec, evaluated when states are merged."""

from collections.abc import Sequence

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from skewless.errors import SpecError, first_line
from skewless.query.functions import SparkCall
from skewless.query.levels import RESULT
from skewless.query.rows import reread
from skewless.query.understood import INPUT, STATE
from skewless.spec.input import OWN_PREFIX
from skewless_spark.branches import merges_kept
from skewless_spark.mapping.query_mapper import require_same, require_stable, viewed
from skewless_spark.session.session import query_in_jvm
from skewless_spark.sources.formats.input_files import quoted
from skewless_spark.sources.unit_reading import lookups_of
from skewless_spark.states.job_columns import HASH, JobColumns

#: The rows of the input that a result stands for, the hash of these, and whether it is published.
ROWS, HASHED, KEPT = f"{OWN_PREFIX}rows", f"{OWN_PREFIX}{HASH}", f"{OWN_PREFIX}kept"


def joined_states(merged: DataFrame, columns: JobColumns) -> tuple[DataFrame, JobColumns]:
    """Merged states and their columns, of the keys of the query: where they are joined to lookups, merged once more."""
    spec, of_results = columns.job.spec, JobColumns.of(columns.job.of_results)
    if spec.joined is None:
        return merged, columns
    places = [F.col(key).alias(f"of_{key}") for key in columns.keys]
    beside = F.struct(*(name for name in merged.columns if name not in columns.keys), *places).alias(STATE)
    named = (F.col(key).alias(name) for key, name in zip(columns.keys, spec.key, strict=True))
    with viewed({INPUT: merged.select(*named, beside), **lookups_of(merged.sparkSession, columns.job)}) as views:
        made = merged.sparkSession.sql(reread(spec.joined.query, views)[1])
    numbers = zip(of_results.job.spec.key, of_results.keys, strict=True)
    states = made.select(*(F.col(quoted(name)).alias(number) for name, number in numbers), f"{STATE}.*")
    by = of_results.result_keys
    if not of_results.merged_in_any_order:  # sums of floats are to be rounded the same way each time
        states = states.repartition(spec.output.files, *by)
        states = states.sortWithinPartitions(*by, *(f"of_{key}" for key in columns.keys))
    again = states.groupBy(*by).agg(*merges_kept(states, of_results, None))
    return again.coalesce(spec.output.files), of_results


def published_rows(
    results: DataFrame, columns: JobColumns, where: str = "job.json", *, states: Sequence[str] = ()
) -> DataFrame:
    """The published columns of all results by their own names, with ``ROWS``, ``HASHED`` and ``KEPT``.

    Args:
        results: with key columns and results by their numbers, and ``rows``.
        where: stands before the name of a field in an error.
        states: columns that are kept beside them, with our prefix before their names.
    """
    spec, beside = columns.job.spec, {name: f"{OWN_PREFIX}{name}" for name in ("rows", HASH, *states)}
    own = columns.own_names | beside
    named = results.select(*(F.col(number).alias(name) for number, name in own.items()))
    if spec.result is None:
        return named.withColumn(KEPT, F.lit(True))
    if spec.of_all_rows:
        named = _one_row(named, columns)
    at = f"{where}, field result"
    try:
        made = named.selectExpr(
            *spec.result.select, *map(quoted, spec.covered.columns), *beside.values(),
            f"coalesce({spec.result.where or 'true'}, false) AS {KEPT}",
        )  # fmt: skip
        plan = query_in_jvm(made).analyzed()
    except PySparkException as err:
        raise SpecError(at, "expressions over keys and aggregates", first_line(err)) from None
    require_same(plan, at)
    return made


def _one_row(named: DataFrame, columns: JobColumns) -> DataFrame:
    """The result of all rows, of each window; of no rows, there is one too, where Spark's own sketches are not null."""
    by, several = columns.job.spec.covered.columns, columns.job.spec.covered.several or ()
    types = {**columns.job.key_types, **columns.job.column_types}
    nulls = {name: f"{OWN_PREFIX}null{at}" for at, name in enumerate(types)}
    made = {name: f"any_value({quoted(name)})" for name in named.columns if name not in by}
    made |= {name: f"coalesce({made[name]}, 0)" for name in (ROWS, HASHED)}
    for name, call in columns.job.spec.aggregates.items():
        if call.function == "spark":
            made[name] = f"IF(count(1) = 0, {SparkCall(str(call.options['expression'])).over(nulls)}, {made[name]})"
    filled = named.selectExpr("*", *(f"CAST(NULL AS {types[name]}) AS {null}" for name, null in nulls.items()))
    for window in by:
        lengths = filled.sparkSession.range(1).select(F.explode(F.array(*map(F.lit, several))).alias(window))
        filled = lengths.join(filled, window, "left")
    return filled.groupBy(*by).agg(*(F.expr(text).alias(name) for name, text in made.items()))


def joined_rows(published: DataFrame, columns: JobColumns, where: str = "job.json") -> DataFrame:
    """Results joined to lookups as the query has it; as they are without one."""
    result = columns.job.spec.result
    if result is None or result.query is None:
        return published
    own = published.where(KEPT).drop(ROWS, HASHED, KEPT)
    spark = published.sparkSession
    with viewed({RESULT: own, **lookups_of(spark, columns.job)}) as views:
        try:
            made = spark.sql(reread(result.query, views)[1])
        except PySparkException as err:
            raise SpecError(f"{where}, field result", "a query over results and tables", first_line(err)) from None
    require_stable(query_in_jvm(made).analyzed(), f"{where}, field result")
    return made.select("*", F.lit(True).alias(KEPT))
