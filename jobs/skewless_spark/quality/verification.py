"""Compares the result that was made of kept states with one that was computed from all rows."""

from __future__ import annotations

from functools import reduce
from typing import Any, NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType, FloatType

from skewless.documents.job import Job
from skewless.errors import InputError
from skewless.run.directory import RESULT_STEP, RunDirectory
from skewless_spark.aggregates import Aggregate
from skewless_spark.aggregates.binding import BoundAggregate
from skewless_spark.aggregates.definition import NativeAggregate
from skewless_spark.quality.all_rows import results_of_all_states
from skewless_spark.states.columns import JobColumns
from skewless_spark.states.committed_files import RESULT, read_files

#: Sums of floating-point numbers are rounded at each step: relative to the larger of two results.
ROUNDING = 1e-9
#: So many keys that differ are named.
EXAMPLES = 3
_VALUE_CHARS = 80


class Differences(NamedTuple):
    """How a result differs from what all rows give.

    Attributes:
        keys: how many keys there are in either.
        missing_keys: how many are in one of them only.
        exact: for each aggregate that has one right result, how many keys have another one.
        approximate: for each other aggregate, how many keys have results that are further apart than both of their
            stated errors allow.
        examples: some keys that differ, each with what differs.
    """

    keys: int
    missing_keys: int
    exact: dict[str, int]
    approximate: dict[str, int]
    examples: tuple[str, ...] = ()

    @property
    def found(self) -> bool:
        """Whether the kept states are wrong."""
        return bool(self.missing_keys or any(self.exact.values()) or any(self.approximate.values()))


def require_same_input(kept: Job, whole: Job) -> None:
    """Refuse to compare runs that have found different files."""
    now = _files(whole)
    for name, files in _files(kept).items():
        if files != now.pop(name, None):
            raise InputError(f"part {name}", "the same files for both runs", "others", "try again")
    if now:
        raise InputError(f"part {min(now)}", "the same files for both runs", "some for one only", "try again")


def _files(job: Job) -> dict[str, list[tuple[str, int]]]:
    parts = job.window.parts if job.window else ()
    return {part.name: [(file.path, file.size_bytes) for file in part.files] for part in parts}


def differences(spark: SparkSession, kept: RunDirectory, whole: RunDirectory) -> Differences:
    """Compare the results of two runs of one job, key by key.

    Args:
        kept: the run that used kept states.
        whole: the run that has read all rows, with states of its own.

    Raises:
        InputError: the two have read different files.
    """
    require_same_input(kept.job(), whole.job())
    return compared(committed_result(spark, kept), results_of_all_states(spark, whole), JobColumns.of(kept.job()))


def committed_result(spark: SparkSession, run: RunDirectory) -> DataFrame:
    """The committed result of a run, with its columns by their numbers."""
    own = JobColumns.of(run.job()).own_names
    return read_files(spark, run, run.committed(RESULT_STEP).of_kind(RESULT)).toDF(*own)


def compared(result: DataFrame, other: DataFrame, columns: JobColumns) -> Differences:
    """Compare a result with what all rows give, key by key.

    Args:
        result: with its columns by their numbers.
        other: of ``skewless_spark.result.merge.evaluated_rows``.
    """
    keys = columns.result_keys
    ours, theirs = result.withColumn("there", F.lit(1)).alias("a"), other.withColumn("there", F.lit(1)).alias("b")
    same_key = reduce(Column.__and__, (F.col(f"a.{key}").eqNullSafe(F.col(f"b.{key}")) for key in keys))
    both = ours.join(theirs, same_key, "full")
    in_both = F.col("a.there").isNotNull() & F.col("b.there").isNotNull()
    numbered = columns.results
    differs = {
        name: in_both & ~alike(one, name, columns, ROUNDING if _is_float(result, name) else None)
        for one, name in zip(columns.bound, numbered, strict=True)
    }
    found = both.agg(
        F.count(F.lit(1)).alias("keys"),
        F.count(F.when(~in_both, 1)).alias("missing"),
        *(F.count(F.when(condition, 1)).alias(name) for name, condition in differs.items()),
    ).collect()[0]
    counts = {one.name: int(found[name]) for one, name in zip(columns.bound, numbered, strict=True)}
    approximate = {one.name for one in columns.bound if one.definition.agrees}
    told = Differences(
        keys=int(found["keys"]),
        missing_keys=int(found["missing"]),
        exact={name: count for name, count in counts.items() if name not in approximate},
        approximate={name: count for name, count in counts.items() if name in approximate},
    )
    if not told.found:
        return told
    wrong = both.where(reduce(Column.__or__, differs.values(), ~in_both)).select(
        F.array(*(F.coalesce(F.col(f"a.{key}"), F.col(f"b.{key}")).cast("string") for key in keys)).alias("key"),
        F.col("a.there").isNotNull().alias("ours"),
        F.col("b.there").isNotNull().alias("theirs"),
        *(condition.alias(f"differs_{name}") for name, condition in differs.items()),
        *(
            shown(one, F.col(f"{side}.{name}")).alias(f"{side}_{name}")
            for one, name in zip(columns.bound, numbered, strict=True)
            for side in "ab"
        ),
    )
    rows = wrong.orderBy("key").limit(EXAMPLES).collect()
    names = dict(zip(numbered, counts, strict=True))
    return told._replace(examples=tuple(_example(row.asDict(), names) for row in rows))


def _example(row: dict[str, Any], names: dict[str, str]) -> str:
    key = ", ".join("null" if one is None else repr(one) for one in row["key"])
    if not (row["ours"] and row["theirs"]):
        return f"{key} is in {'the result' if row['ours'] else 'the rows'} only"
    told = [
        f"{own} is {short(row[f'a_{name}'])} and not {short(row[f'b_{name}'])}"
        for name, own in names.items()
        if row[f"differs_{name}"]
    ]
    return f"of {key}, {'; '.join(told)}"


def shown(one: BoundAggregate[Aggregate], result: Column) -> Column:
    """A result as a report has it: of a sketch, what it estimates."""
    definition = one.definition
    return definition.shown(result, one.options, one.spark_type) if isinstance(definition, NativeAggregate) else result


def short(value: Any) -> str:
    """A value as a report has it."""
    text = repr(value)
    return text if len(text) <= _VALUE_CHARS else f"{text[: _VALUE_CHARS - 3]}..."


def _is_float(result: DataFrame, name: str) -> bool:
    return isinstance(result.schema[name].dataType, DoubleType | FloatType)


def alike(one: BoundAggregate[Aggregate], name: str, columns: JobColumns, rounding: float | None) -> Column:
    """Whether the result ``a.NAME`` may be of the same rows as ``b.NAME``, with the states and the rows of that side.

    Args:
        name: the number of the result.
        rounding: of floating-point numbers that are exact but for the order of their sums: how far they may be apart,
            relative to the larger one.
    """
    ours, theirs, rows = F.col(f"a.{name}"), F.col(f"b.{name}"), F.col("b.rows")
    same, definition, options = ours.eqNullSafe(theirs), one.definition, one.options
    if definition.agrees is None:
        if rounding is None:
            return same
        ours, theirs = ours.cast("double"), theirs.cast("double")
        largest = F.greatest(F.abs(ours), F.abs(theirs))
        near = (largest < F.lit(float("inf"))) & (F.abs(ours - theirs) <= largest * rounding)
    elif isinstance(definition, NativeAggregate):
        states = [F.col(f"b.{state}") for state in columns.states(one)]
        near = definition.agrees(ours, states, options, one.spark_type, rows)
    else:
        agrees = definition.agrees

        # Spark calls this for keys of one side, too, whatever condition stands before the call.
        near = F.udf(lambda a, b, of: None not in (a, b) and agrees(a, b, options, of), "boolean")(ours, theirs, rows)
    return same | F.coalesce(near, F.lit(False))
