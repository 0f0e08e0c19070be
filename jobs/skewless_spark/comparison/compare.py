"""Compares the result of a run with that of another job: both are joined by key on Spark."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import reduce
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, DoubleType, FloatType, IntegralType, NumericType, StringType

from skewless.documents.comparison import Comparison, DifferingKey, Sides
from skewless.errors import InputError, QualityError, without_secrets
from skewless.run.directory import RunDirectory
from skewless_spark.comparison.other_side import OtherSide
from skewless_spark.quality.all_rows import results_of_all_rows
from skewless_spark.quality.verification import alike, committed_result, compared, short, shown
from skewless_spark.sources.uris import quoted
from skewless_spark.states.columns import JobColumns

#: How a key may differ as a whole.
_STATES = ("only here", "only there", "twice there")
#: A property is told of keys that differ if it holds for so much of them, and so many times as often as for all keys.
_SHARE, _TIMES = 0.5, 1.5
#: Characters of a text by whose beginning keys are put together.
_PREFIX = 3
#: Of about so many keys that differ it is looked up what is commonest among them: Spark counts that in memory.
_LOOKED_AT = 100_000


def compared_columns(run: RunDirectory, spark: SparkSession) -> dict[str, str]:
    """The Spark SQL type of each column of a run's result: those of the key first."""
    own = JobColumns.of(run.job()).own_names
    return {own[field.name]: field.dataType.simpleString() for field in committed_result(spark, run).schema.fields}


def compare(spark: SparkSession, run: RunDirectory, theirs: OtherSide, tolerance: float, worst: int) -> Comparison:
    """Compare the committed result of a run with another one.

    Aggregates that are approximate are compared with the states of all rows, which the run is held against, too.

    Args:
        tolerance: how far floating-point numbers may be apart, relative to the larger one.

    Raises:
        InputError: the other result has no such keys.
        QualityError: the result is not that of its own rows.
    """
    began, columns = time.monotonic(), JobColumns.of(run.job())
    with _ours(spark, run, columns) as ours:
        found = _compared(ours, theirs, columns, tolerance, worst)
    beside, seconds = without_secrets(theirs.name), round(time.monotonic() - began, 3)
    return Comparison(beside=beside, tolerance=tolerance, seconds=seconds, **found)


def _compared(ours: DataFrame, theirs: OtherSide, columns: JobColumns, tolerance: float, worst: int) -> dict[str, Any]:
    own, keys = columns.own_names, columns.result_keys
    _require_keys(columns, ours, theirs)
    found_there = {number: own[number] for number in columns.results if own[number] in theirs.columns}
    types = _other_types(ours, theirs, found_there)
    judged = {number: name for number, name in found_there.items() if name not in types}
    numbered = theirs.rows.select(
        *(F.col(quoted(own[key])).alias(key) for key in keys),
        *(F.col(quoted(name)).alias(number) for number, name in judged.items()),
    )
    found = _judged(ours, numbered, columns, judged, tolerance)
    counts = _counts(found, judged)
    told: dict[str, Any] = {"worst": (), "concentrated": ()}
    if counts["differ"]:
        kept = found.persist(StorageLevel.DISK_ONLY)  # it is looked at three times more, and may be large
        try:
            told = {
                "worst": _worst(kept.where("differs"), columns, judged, worst),
                "concentrated": _concentrated(kept, counts["differ"], keys, own),
            }
        finally:
            kept.unpersist()
    return {
        **counts,
        "within_error": tuple(
            one.name for one in columns.bound if one.definition.agrees and one.name in judged.values()
        ),
        "lacking": tuple(one.name for one in columns.bound if one.name not in theirs.columns),
        "types": types,
        "more": tuple(name for name in theirs.columns if name not in own.values()),
        **told,
    }


@contextmanager
def _ours(spark: SparkSession, run: RunDirectory, columns: JobColumns) -> Iterator[DataFrame]:
    """Our side, with the states of all rows where an aggregate is approximate: they are kept on disk meanwhile."""
    result = committed_result(spark, run)
    if not any(one.definition.agrees for one in columns.bound):
        yield result.withColumn("rows", F.lit(None).cast("bigint"))
        return
    whole = results_of_all_rows(spark, run.job()).persist(StorageLevel.DISK_ONLY)
    try:
        own = compared(result, whole, columns)
        if own.found:
            raise QualityError.saying(
                f"result of {run}", f"it is not that of its own rows: {'; '.join(own.examples)}",
                "report this as a fault",
            )  # fmt: skip
        yield whole
    finally:
        whole.unpersist()


def _require_keys(columns: JobColumns, ours: DataFrame, theirs: OtherSide) -> None:
    for number in columns.result_keys:
        name, kind = columns.own_names[number], ours.schema[number].dataType
        if name not in theirs.rows.columns:
            raise InputError(
                theirs.where, f"the key column {name!r}", ", ".join(theirs.columns), "rename it in a query"
            )
        came = theirs.rows.schema[name].dataType
        if came != kind and not all(isinstance(one, IntegralType) for one in (came, kind)):
            raise InputError(
                f"{theirs.where}, key column {name!r}",
                f"type {kind.simpleString()}",
                came.simpleString(),
                "cast it in a query",
            )


def _other_types(ours: DataFrame, theirs: OtherSide, shared: dict[str, str]) -> dict[str, tuple[str, str]]:
    """The columns that cannot be compared, with our type and theirs: numbers can be, whatever they are."""
    found = {}
    for number, name in shared.items():
        kind, came = ours.schema[number].dataType, theirs.columns[name]
        read = name in theirs.rows.columns
        if not read or (came != kind.simpleString() and not _are_numbers(kind, theirs.rows.schema[name].dataType)):
            found[name] = (kind.simpleString(), came)
    return found


def _are_numbers(*kinds: DataType) -> bool:
    return all(isinstance(one, NumericType) for one in kinds)


def _judged(
    ours: DataFrame, theirs: DataFrame, columns: JobColumns, judged: dict[str, str], tolerance: float
) -> DataFrame:
    """All keys of either side: ``k_AT``, ``state``, ``differs``.

    Of each column: ``d_NUMBER``, whether it differs, ``a_NUMBER``, which is theirs, and ``b_NUMBER``, which is ours.
    """
    keys = columns.result_keys
    once = theirs.groupBy(*keys).agg(F.count(F.lit(1)).alias("there"), *(F.first(one).alias(one) for one in judged))
    same_key = reduce(Column.__and__, (F.col(f"a.{key}").eqNullSafe(F.col(f"b.{key}")) for key in keys))
    both = once.alias("a").join(ours.withColumn("here", F.lit(1)).alias("b"), same_key, "full")
    state = (
        F.when(F.col("a.there").isNull(), "only here")
        .when(F.col("b.here").isNull(), "only there")
        .when(F.col("a.there") > 1, "twice there")
        .otherwise("both")
    )
    bound = dict(zip(columns.results, columns.bound, strict=True))
    differ = []
    for number in judged:
        kinds = (theirs.schema[number].dataType, ours.schema[number].dataType)
        # A whole number is exact, also beside a float.
        rounded = any(isinstance(kind, DoubleType | FloatType) for kind in kinds)
        near = tolerance if rounded and not any(isinstance(kind, IntegralType) for kind in kinds) else None
        differ.append(F.when(state == "both", ~alike(bound[number], number, columns, near)))
    return both.select(
        *(F.coalesce(F.col(f"a.{key}"), F.col(f"b.{key}")).alias(f"k_{at}") for at, key in enumerate(keys)),
        state.alias("state"), reduce(Column.__or__, differ, state != "both").alias("differs"),
        *(column.alias(f"d_{number}") for number, column in zip(judged, differ, strict=True)),
        *(F.col(f"{side}.{number}").alias(f"{side}_{number}") for number in judged for side in "ab"),
    )  # fmt: skip


def _counts(found: DataFrame, judged: dict[str, str]) -> dict[str, Any]:
    counted = found.agg(
        F.count(F.lit(1)).alias("keys"),
        F.count_if("differs").alias("differ"),
        *(F.count_if(F.col("state") == state).alias(state.replace(" ", "_")) for state in _STATES),
        *(F.count_if(f"d_{number}").alias(f"d_{number}") for number in judged),
    ).collect()[0]
    alone = {name: int(counted[name]) for name in ("keys", "differ", *(state.replace(" ", "_") for state in _STATES))}
    return {**alone, "columns": {name: int(counted[f"d_{number}"]) for number, name in judged.items()}}


def _worst(wrong: DataFrame, columns: JobColumns, judged: dict[str, str], number: int) -> tuple[DifferingKey, ...]:
    """The keys whose numbers are furthest apart, relative to the larger one; all else is as far as can be."""
    keys, own = columns.result_keys, columns.own_names
    apart = [F.lit(0.0)]
    for one in judged:
        distance = F.lit(1.0)
        if isinstance(wrong.schema[f"a_{one}"].dataType, NumericType):
            ours, theirs = F.col(f"b_{one}").cast("double"), F.col(f"a_{one}").cast("double")
            distance = F.coalesce(F.try_divide(F.abs(ours - theirs), F.greatest(F.abs(ours), F.abs(theirs))), distance)
        apart.append(F.when(F.col(f"d_{one}"), distance).otherwise(0.0))
    ordered = wrong.orderBy(
        F.when(F.col("state") != "both", 1.0).otherwise(F.greatest(*apart, F.lit(0.0))).desc(),
        *(f"k_{at}" for at in range(len(keys))),
    )
    readable = {
        f"{side}_{result}": shown(one, F.col(f"{side}_{result}"))
        for one, result in zip(columns.bound, columns.results, strict=True)
        for side in "ab"
        if result in judged
    }
    return tuple(
        DifferingKey(
            key={own[key]: short(row[f"k_{at}"]) for at, key in enumerate(keys)},
            state="" if row["state"] == "both" else row["state"],
            columns={
                name: Sides(here=short(row[f"b_{one}"]), there=short(row[f"a_{one}"]))
                for one, name in judged.items()
                if row[f"d_{one}"]
            },
        )
        for row in ordered.limit(number).withColumns(readable).collect()
    )


def _concentrated(found: DataFrame, differ: int, keys: list[str], own: dict[str, str]) -> tuple[str, ...]:
    """What most keys that differ have in common: a null, the beginning of a text, or one of several key columns."""
    looked_at: dict[str, Column] = {}
    for at, key in enumerate(keys):
        column, name = F.col(f"k_{at}"), own[key]
        if isinstance(found.schema[f"k_{at}"].dataType, StringType):
            looked_at[f"{name} begins with"] = F.substring(column, 1, _PREFIX)
        if len(keys) > 1:
            looked_at[f"{name} is"] = column
    modes = (F.mode(column).alias(f"m{at}") for at, column in enumerate(looked_at.values()))
    some = F.pmod(F.xxhash64(*(f"k_{at}" for at in range(len(keys)))), F.lit(-(-differ // _LOOKED_AT))) == 0
    commonest = found.where(F.col("differs") & some).agg(F.count(F.lit(1)), *modes).collect()[0]
    told, asked = [], {f"{own[key]} is null": F.col(f"k_{at}").isNull() for at, key in enumerate(keys)}
    for at, (name, column) in enumerate(looked_at.items()):
        if commonest[f"m{at}"] is not None:
            asked[f"{name} {short(commonest[f'm{at}'])}"] = column == F.lit(commonest[f"m{at}"])
    counted = found.agg(
        F.count(F.lit(1)).alias("all"), F.count_if("differs").alias("differ"),
        *(F.count_if(which).alias(f"all{at}") for at, which in enumerate(asked.values())),
        *(F.count_if(which & F.col("differs")).alias(f"differ{at}") for at, which in enumerate(asked.values())),
    ).collect()[0]  # fmt: skip
    for at, name in enumerate(asked):
        differ, every = counted[f"differ{at}"], counted[f"all{at}"]
        if differ >= _SHARE * counted["differ"] > 0 and differ * counted["all"] >= _TIMES * every * counted["differ"]:
            told.append(f"{name}: {differ:,} of the {counted['differ']:,} keys that differ, {every:,} of all keys")
    return tuple(told)
