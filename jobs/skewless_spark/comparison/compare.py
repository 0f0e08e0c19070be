"""Compares the result of a run with another one: one full outer join by key on Spark, and one report.

It serves ``skewless compare``, also with a fresh computation, and the last step of a run in the shadow of another job.
"""

import time
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DoubleType,
    FloatType,
    IntegralType,
    MapType,
    NumericType,
    StructField,
    StructType,
)

from skewless.documents.quality import Comparison, DifferingKey, Sides
from skewless.errors import InputError, RunDirectoryError, without_secrets
from skewless.run.directory import COMPARISON_REPORT, COMPARISON_STEP, RESULT_STEP, Fence, RunDirectory
from skewless.spec.input import OWN_PREFIX
from skewless_lake.publication import keep_savings
from skewless_spark.aggregates import Aggregate
from skewless_spark.aggregates.binding import BoundAggregate
from skewless_spark.aggregates.definition import NativeAggregate
from skewless_spark.comparison.other_side import FIELD, OtherSide, other_side, results_of_all_rows
from skewless_spark.result.published_rows import KEPT, ROWS, published_rows
from skewless_spark.session.step_lease import once
from skewless_spark.sources.formats.input_files import quoted
from skewless_spark.sources.formats.texts import type_text
from skewless_spark.states.committed_files import RESULT, read_files
from skewless_spark.states.job_columns import JobColumns

#: So many keys that differ are named by a run in the shadow of another job.
EXAMPLES = 10
#: The counts of keys that differ as a whole, by the state of such a key.
_STATES = {"only here": "only_here", "only there": "only_there", "twice there": "twice_there"}
_VALUE_CHARS = 80


def compare_shadow(spark: SparkSession, run: RunDirectory) -> Comparison:
    """Compare the committed result of a run with the one that its spec names, unless that has been done.

    Returns:
        The committed comparison: of this attempt, or of the attempt that committed first.

    Raises:
        InputError: there is no such other result, or it has other keys.
        QualityError: the results differ, and the spec says that this fails the run; the comparison is committed.
        RunDirectoryError: the result is not committed, or the run is to be published.
    """
    job = run.job()
    if (shadow := job.spec.shadow) is None:
        raise RunDirectoryError.saying(
            f"run {run}", "it was begun with a spec without shadow, so its result is to be published", "begin a new run"
        )

    def compared(fence: Fence | None) -> Comparison:
        theirs = other_side(spark, shadow.other, job, compared_columns(run, spark), FIELD)
        comparison = compare(spark, run, theirs, shadow.tolerance, EXAMPLES)
        attempt = run.new_attempt(COMPARISON_STEP, fence)
        attempt.write(COMPARISON_REPORT, comparison)
        attempt.commit([], {"keys": comparison.keys, "differ": comparison.differ})
        return comparison

    comparison = once(run, COMPARISON_STEP, run.comparison, compared)
    keep_savings(run)
    comparison.require_allowed(shadow, f"comparison of {run}")
    return comparison


def committed_result(spark: SparkSession, run: RunDirectory) -> DataFrame:
    """The committed result of a run, with its columns by their numbers."""
    own = JobColumns.of(run.job().of_results).published
    rows = read_files(spark, run, run.committed(RESULT_STEP).of_kind(RESULT))
    return rows.select(*(F.col(quoted(name)).alias(number) for number, name in own.items()))


def compared_columns(run: RunDirectory, spark: SparkSession) -> dict[str, str]:
    """The Spark SQL type of each column of a run's result: those of the key first."""
    own = JobColumns.of(run.job().of_results).published
    return {own[field.name]: type_text(field.dataType) for field in committed_result(spark, run).schema.fields}


def compare(spark: SparkSession, run: RunDirectory, theirs: OtherSide, tolerance: float, examples: int) -> Comparison:
    """Compare the committed result of a run with another one.

    Exact aggregates must be equal, floats within a tolerance, approximate aggregates within their stated errors: these
    are held against states of all rows, which the run does not keep and which are computed for it.

    Args:
        tolerance: how far floating-point numbers may be apart, relative to the larger one.
        examples: so many keys that differ are named.
    """
    began, columns = time.monotonic(), JobColumns.of(run.job().of_results)
    ours, own = committed_result(spark, run), columns.published
    _require_keys(columns, ours, theirs)
    values = {number: name for number, name in own.items() if number not in _keys(columns)}
    shared = {number: name for number, name in values.items() if theirs.fresh or name in theirs.columns}
    # Columns that cannot be compared, with our type and theirs: numbers can be, whatever they are.
    types = {
        name: (ours.schema[number].dataType.simpleString(), theirs.columns[name])
        for number, name in ({} if theirs.fresh else shared).items()
        if name not in theirs.rows.columns
        or not _comparable(ours.schema[number].dataType, theirs.rows.schema[name].dataType)
    }
    aggregates = dict(zip(columns.results, columns.bound, strict=True))
    bound = {number: aggregates.get(number) for number, name in shared.items() if name not in types}
    approximate = [own[number] for number, aggregate in bound.items() if aggregate and aggregate.definition.agrees]
    there = theirs.rows
    if theirs.fresh and columns.job.spec.result is not None:
        made = published_rows(there, columns, states=columns.sketches).where(KEPT)
        all_of_it = {**own, "rows": ROWS, **{name: f"{OWN_PREFIX}{name}" for name in columns.sketches}}
        there = made.select(*(F.col(quoted(name)).alias(number) for number, name in all_of_it.items()))
    if not theirs.fresh:
        there = there.select(*(F.col(quoted(own[number])).alias(number) for number in (*_keys(columns), *bound)))
        if approximate:
            whole = results_of_all_rows(spark, run.job()).select(*columns.result_keys, "rows", *columns.sketches)
            both = _joined(ours, whole, _keys(columns), "left")
            ours = both.select(*(F.col(f"h.{number}") for number in ours.columns), "rows", *columns.sketches)
    rows = _judged(ours, there, columns, bound, tolerance, fresh=theirs.fresh)
    counted = rows.agg(
        F.count(F.lit(1)).alias("keys"),
        F.count_if("differs").alias("differ"),
        *(F.count_if(F.col("state") == state).alias(name) for state, name in _STATES.items()),
        *(F.count_if(f"d_{number}").alias(f"d_{number}") for number in bound),
    ).collect()[0]
    named = _examples(rows, columns, bound, examples) if counted["differ"] else ()
    return Comparison(
        beside=without_secrets(theirs.name),
        **{name: int(counted[name]) for name in ("keys", "differ", *_STATES.values())},
        columns={own[number]: int(counted[f"d_{number}"]) for number in bound},
        within_error=tuple(approximate),
        lacking=tuple(name for number, name in values.items() if number not in shared),
        types=types,
        more=tuple(name for name in theirs.columns if name not in own.values()),
        examples=named,
        tolerance=tolerance,
        seconds=round(time.monotonic() - began, 3),
    )


def _require_keys(columns: JobColumns, ours: DataFrame, theirs: OtherSide) -> None:
    spec = columns.job.spec
    if theirs.fresh and spec.result is not None and spec.result.query is not None:
        raise InputError.saying(
            f"result of {spec.name}", "a result that is joined to tables is not computed anew for a comparison",
            "compare it with a query",
        )  # fmt: skip
    if not (spec.keyed or spec.of_all_rows):
        raise InputError.saying(
            f"result of {spec.name}", "its rows cannot be compared, as some of its keys are not published",
            "put them into the select list",
        )  # fmt: skip
    for number in () if theirs.fresh else _keys(columns):
        name, kind = columns.published[number], ours.schema[number].dataType
        if name not in theirs.rows.columns:
            raise InputError(
                theirs.where, f"the key column {name!r}", ", ".join(theirs.columns), "rename it in a query"
            )
        other = theirs.rows.schema[name].dataType
        if other != kind and not all(isinstance(key, IntegralType) for key in (other, kind)):
            raise InputError(
                f"{theirs.where}, key column {name!r}", f"type {kind.simpleString()}", other.simpleString(),
                "cast it in a query",
            )  # fmt: skip


def _keys(columns: JobColumns) -> list[str]:
    """The key columns of the result by their numbers; none where it is one row."""
    return [number for number in columns.result_keys if number in columns.published]


def _comparable(ours: DataType, theirs: DataType) -> bool:
    if isinstance(ours, StructType) and isinstance(theirs, StructType):
        return ours.names == theirs.names and all(
            _comparable(ours[name].dataType, theirs[name].dataType) for name in ours.names
        )
    if isinstance(ours, ArrayType) and isinstance(theirs, ArrayType):
        return _comparable(ours.elementType, theirs.elementType)
    if isinstance(ours, MapType) and isinstance(theirs, MapType):
        return ours.keyType == theirs.keyType and _comparable(ours.valueType, theirs.valueType)
    return ours == theirs or (isinstance(ours, NumericType) and isinstance(theirs, NumericType))


def _joined(here: DataFrame, there: DataFrame, keys: Sequence[str], how: str) -> DataFrame:
    """Two frames, called ``h`` and ``t``, by their key columns, of which null is a value like any other."""
    same_key = (F.col(f"h.{key}").eqNullSafe(F.col(f"t.{key}")) for key in keys)
    return here.alias("h").join(there.alias("t"), reduce(Column.__and__, same_key, F.lit(True)), how)


def _judged(
    ours: DataFrame,
    theirs: DataFrame,
    columns: JobColumns,
    bound: Mapping[str, BoundAggregate[Aggregate] | None],
    tolerance: float,
    *,
    fresh: bool,
) -> DataFrame:
    """All keys of either side: ``k_AT``, ``state``, ``differs``.

    Of each column: ``d_NUMBER``, whether it differs, ``h_NUMBER``, which is ours, and ``t_NUMBER``, which is theirs.

    Args:
        fresh: whether theirs has the states and the counts of rows that approximate results are held against.
    """
    keys = _keys(columns)
    others = [F.first(name).alias(name) for name in theirs.columns if name not in keys]
    once = theirs.groupBy(*keys).agg(F.count(F.lit(1)).alias("times"), *others)
    both = _joined(ours.withColumn("here", F.lit(1)), once, keys, "full")
    state = (
        F.when(F.col("t.times").isNull(), "only here")
        .when(F.col("h.here").isNull(), "only there")
        .when(F.col("t.times") > 1, "twice there")
        .otherwise("both")
    )
    judged, reference = ("h", "t") if fresh else ("t", "h")
    differ = {}
    for number, aggregate in bound.items():
        here, there = F.col(f"h.{number}"), F.col(f"t.{number}")
        alike = _alike(here, there, ours.schema[number].dataType, theirs.schema[number].dataType, tolerance)
        if aggregate is not None and aggregate.definition.agrees is not None:
            states = [F.col(f"{reference}.{name}") for name in columns.states(aggregate)]
            result, held = (F.col(f"{side}.{number}") for side in (judged, reference))
            alike |= _agree(aggregate, result, held, states, F.col(f"{reference}.rows"))
        differ[number] = F.when(state == "both", ~alike)
    return both.select(
        *(F.coalesce(F.col(f"h.{key}"), F.col(f"t.{key}")).alias(f"k_{at}") for at, key in enumerate(keys)),
        state.alias("state"), reduce(Column.__or__, differ.values(), state != "both").alias("differs"),
        *(column.alias(f"d_{number}") for number, column in differ.items()),
        *(F.col(f"{side}.{number}").alias(f"{side}_{number}") for number in bound for side in "ht"),
    )  # fmt: skip


def _alike(here: Column, there: Column, ours: DataType, theirs: DataType, tolerance: float) -> Column:
    """Whether two values are equal, and floats within them near to each other; null and NaN are equal to themselves."""
    if isinstance(ours, StructType) and isinstance(theirs, StructType):
        fields = (
            _alike(here.getField(name), there.getField(name), ours[name].dataType, theirs[name].dataType, tolerance)
            for name in ours.names
        )
        alike = reduce(Column.__and__, fields, F.lit(True))
    elif isinstance(ours, ArrayType) and isinstance(theirs, ArrayType):
        of = ours.elementType, theirs.elementType
        each = F.zip_with(here, there, lambda left, right: _alike(left, right, *of, tolerance))
        alike = (F.size(here) == F.size(there)) & F.forall(each, lambda element: element)
    elif isinstance(ours, MapType) and isinstance(theirs, MapType):
        return _alike(_entries(here), _entries(there), _entries_type(ours), _entries_type(theirs), tolerance)
    else:
        alike = here.eqNullSafe(there)
        floats = any(isinstance(kind, DoubleType | FloatType) for kind in (ours, theirs))
        # A whole number is exact, also beside a float.
        if floats and not any(isinstance(kind, IntegralType) for kind in (ours, theirs)):
            left, right = here.cast("double"), there.cast("double")
            largest = F.greatest(F.abs(left), F.abs(right))
            near = (largest < F.lit(float("inf"))) & (F.abs(left - right) <= largest * tolerance)
            alike |= F.coalesce(near, F.lit(False))
        return alike
    return (here.isNull() & there.isNull()) | (here.isNotNull() & there.isNotNull() & alike)


def _entries(values: Column) -> Column:
    return F.transform(
        F.array_sort(F.map_keys(values)),
        lambda key: F.struct(key.alias("key"), F.try_element_at(values, key).alias("value")),
    )


def _entries_type(kind: MapType) -> ArrayType:
    return ArrayType(StructType([StructField("key", kind.keyType), StructField("value", kind.valueType)]))


def _agree(
    aggregate: BoundAggregate[Aggregate], result: Column, reference: Column, states: Sequence[Column], rows: Column
) -> Column:
    """Whether a result may be of the same rows as a reference, by the states and the rows of that; never null.

    An aggregate's own functions see no null: of a key that is on one side only they are not asked.
    """
    definition, options = aggregate.definition, aggregate.options
    if isinstance(definition, NativeAggregate):
        assert definition.agrees is not None  # noqa: S101
        near = definition.agrees(result, states, options, aggregate.spark_type, rows)
    else:
        agrees = definition.agrees
        assert agrees is not None  # noqa: S101

        # Spark calls this for keys of one side, too, whatever condition stands before the call.
        both = F.udf(lambda a, b, of: None not in (a, b, of) and agrees(a, b, options, of), "boolean")
        near = both(result, reference, rows)
    return F.coalesce(F.when(result.isNotNull() & rows.isNotNull(), near), F.lit(False))


def _examples(
    rows: DataFrame, columns: JobColumns, bound: Mapping[str, BoundAggregate[Aggregate] | None], number: int
) -> tuple[DifferingKey, ...]:
    """The first keys that differ, with what differs; of sketches, what they estimate."""
    keys, own = _keys(columns), columns.published
    readable = {}
    for result, aggregate in bound.items():
        definition = aggregate and aggregate.definition
        if aggregate is not None and isinstance(definition, NativeAggregate):
            for value in (f"h_{result}", f"t_{result}"):
                estimate = definition.shown(F.col(value), aggregate.options, aggregate.spark_type)
                readable[value] = F.when(F.col(value).isNotNull(), estimate)
    wrong = rows.where("differs")
    wrong = (wrong.orderBy(*(f"k_{at}" for at in range(len(keys)))) if keys else wrong).limit(number)
    return tuple(
        DifferingKey(
            key={own[key]: _short(row[f"k_{at}"]) for at, key in enumerate(keys)},
            state=row["state"] if row["state"] in _STATES else "",
            columns={
                own[result]: Sides(here=_short(row[f"h_{result}"]), there=_short(row[f"t_{result}"]))
                for result in bound
                if row[f"d_{result}"]
            },
        )
        for row in wrong.withColumns(readable).collect()
    )


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _VALUE_CHARS else f"{text[: _VALUE_CHARS - 3]}..."
