"""Compares the result of a run with another one: one full outer join by key on Spark, and one report.

It serves ``skewless compare``, also with a fresh computation, and the last step of a run in the shadow of another job.
The other one is what a user names: files, a table, a query, or a fresh computation.
"""

import time
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any, NamedTuple

from pydantic import ValidationError
from pyspark.errors import AnalysisException, ParseException
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

from skewless.document import sentence_of
from skewless.documents.job import Job, Unit
from skewless.documents.quality import Comparison, DifferingKey, Sides
from skewless.errors import InputError, RunDirectoryError, SpecError, first_line, without_secrets
from skewless.run.directory import COMPARISON_REPORT, COMPARISON_STEP, RESULT_STEP, Fence, RunDirectory
from skewless.spec.input import OWN_PREFIX
from skewless.spec.part import resolve_path
from skewless.spec.spec import FRESH, JobSpec, input_of, is_query
from skewless_lake.publication import keep_savings
from skewless_spark.aggregates import Aggregate
from skewless_spark.aggregates.binding import BoundAggregate
from skewless_spark.aggregates.definition import NativeAggregate
from skewless_spark.prepare.freezing import listed, reading, refuse_twins
from skewless_spark.result.merge import evaluated_rows
from skewless_spark.result.published_rows import KEPT, ROWS, published_rows
from skewless_spark.session.session import build_session, session_in_jvm
from skewless_spark.session.step_lease import once
from skewless_spark.sources.formats.column_types import UNSUPPORTED
from skewless_spark.sources.formats.input_files import quoted
from skewless_spark.sources.formats.texts import type_text
from skewless_spark.sources.identity import require_unchanged
from skewless_spark.sources.input_columns import named_as, values_of_folders
from skewless_spark.sources.unit_reading import read_units
from skewless_spark.states.committed_files import RESULT, read_files
from skewless_spark.states.job_columns import JobColumns
from skewless_spark.windows.kept_states import with_window

#: So many keys that differ are named by a run in the shadow of another job.
EXAMPLES = 10
#: The counts of keys that differ as a whole, by the state of such a key.
_STATES = {"only here": "only_here", "only there": "only_there", "twice there": "twice_there"}
_VALUE_CHARS = 80
#: What names the other result, as sentences say.
OPTION, FIELD = "--with", "shadow.with"
#: Formats whose files do not say which types their columns have.
_UNTYPED = ("csv", "json")


class OtherSide(NamedTuple):
    """The rows of another result."""

    rows: DataFrame
    """Of those of our columns that the result has, by their names; without those that only a query reads."""
    columns: dict[str, str]
    """The Spark SQL type of each of its columns."""
    name: str = ""
    """As it was named, with the part put in."""
    where: str = OPTION
    fresh: bool = False
    """Whether it is of all rows of the run itself: it then has all our columns, by their numbers, and the states and
    the counts of rows that approximate results are held against."""


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


def other_side(spark: SparkSession, named: str, job: Job, ours: Mapping[str, str], where: str = OPTION) -> OtherSide:
    """The result that an option, or a field of a spec, names for the part that a job computes.

    Args:
        named: ``fresh``, the result of all rows that the job has pinned; a query that begins with SELECT, WITH, FROM,
            VALUES or TABLE; or ``FORMAT:PATH``, with a format and a path as ``input`` of a spec has them; or a path
            whose ending tells its format, Parquet if it does not. In each of them ``{date}`` and ``{hour}`` are the
            part.
        ours: the Spark SQL type of each column that is compared; CSV and JSON are read with these.

    Raises:
        SpecError: nothing is meant by what is named.
        InputError: the query fails, or there is nothing to read.
    """
    if named == FRESH:
        return OtherSide(results_of_all_rows(spark, job), dict(ours), "a fresh computation", where, fresh=True)
    name = resolve_path(named, job.part, where)
    if is_query(named):
        return _of_query(spark, name, ours, where)
    raw: dict[str, Any] = {"name": "other", "input": input_of(named), "output": {"path": "/unused"}}
    if raw["input"]["format"] in _UNTYPED:
        raw["input"]["columns"] = dict(ours)
    try:
        spec = JobSpec.model_validate({**raw, "key": [next(iter(ours))], "aggregates": {"n": "count"}})
        path, listing = listed(spark, spec, job.part, job.root, where)
    except ValidationError as err:
        raise sentence_of(err, JobSpec, where, SpecError) from None
    except InputError as err:  # which takes it for the job's own input
        raise InputError(f"{where}, {err.where}", err.required, err.came, err.hint) from None
    types = {**listing.source.columns, **listing.source.partition_columns}
    read = tuple(name for name in ours if name in types and not types[name].startswith(UNSUPPORTED))
    if not read:
        raise InputError(f"{where} {named}", f"a result with columns {', '.join(ours)}", ", ".join(types) or "none")
    refuse_twins(read, types, f"{where} {named}")
    # Read as the input of a job whose columns are all known: it groups nothing.
    known = {"key_types": {}, "column_types": {name: types[name] for name in read}, "window": None}
    other = reading(job.model_copy(update={"spec": spec, "input_path": path, **known}), listing, read)
    rows = read_units(spark, other, range(len(other.units)), read, located=False).drop("origin")
    return OtherSide(rows.toDF(*read), types, name, where)


def check_shadow(spec: JobSpec, where: str) -> None:
    """Refuse a query that Spark cannot parse, in a spec that has one; what it names need not be there yet.

    Raises:
        SpecError: says where Spark stumbles.
    """
    if spec.shadow is None or not is_query(spec.shadow.other):
        return
    spark = SparkSession.getActiveSession() or build_session(f"skewless check {spec.name}")
    parser = session_in_jvm(spark).sessionState().sqlParser()
    try:
        parser.parsePlan(f"SELECT * FROM (\n{spec.shadow.other}\n)")  # noqa: S608  # nothing is run
    except ParseException as err:
        raise SpecError(f"{where}, field {FIELD}, the query", "one that Spark can parse", first_line(err)) from None


def _of_query(spark: SparkSession, query: str, ours: Mapping[str, str], where: str) -> OtherSide:
    try:
        rows = spark.sql(f"SELECT * FROM (\n{query}\n)")  # noqa: S608  # what writes cannot stand there
    except (AnalysisException, ParseException) as err:
        raise InputError(f"{where}, the query", "one that Spark can run", first_line(err)) from None
    types = {field.name: field.dataType.simpleString() for field in rows.schema.fields}
    if len(types) < len(rows.columns):
        raise InputError(f"{where}, the query", "columns whose names differ", ", ".join(rows.columns))
    return OtherSide(rows.select(*(F.col(quoted(name)) for name in types if name in ours)), types, query, where)


def results_of_all_rows(spark: SparkSession, job: Job) -> DataFrame:
    """The results of all rows that a job has pinned, for each of its windows, by one pass of plain Spark.

    Returns:
        The key columns and results by their numbers, ``rows``, and the states that ``agrees`` takes.
    """
    of_job, results = JobColumns.of(job), []
    whole: list[tuple[Job, int | None]] = [(job, None)]
    for wide, length in [(_all_rows(job, span.first), span.length) for span in job.covered.windows] or whole:
        ordinals = range(len(wide.units))
        require_unchanged(wide, ordinals)
        columns = JobColumns.of(wide)
        rows = read_units(spark, wide, ordinals, columns.inputs)
        # Each partition has all rows of its keys, in the order of the input.
        placed = rows.repartition(job.spec.output.files, *columns.keys)
        placed = placed.sortWithinPartitions(*columns.keys, *columns.origins)
        results.append(with_window(of_job, evaluated_rows(placed, columns), length))
    return reduce(DataFrame.unionAll, results)


def _all_rows(job: Job, first: int) -> Job:
    """A job without a window, over all files of the parts from one on, in their order."""
    names, pinned = list(job.source.partition_columns), job.source.pinned is not None
    units = []
    for file in (file for part in job.covered.parts[first:] for file in part.files):
        values = file.values
        if not pinned:
            (of_folders,) = named_as(names, [values_of_folders(file.path)])
            values = {name: of_folders.get(name) for name in names}
        units.append(
            Unit(
                path=file.path, rows=0, size_bytes=file.size_bytes, version=file.version, checksum=file.checksum,
                counted=False, values=values, deletes=file.deletes, inner=file.inner, header=file.header,
            )
        )  # fmt: skip
    spec = job.spec.model_copy(update={"window": None})
    return job.model_copy(update={"spec": spec, "units": tuple(units), "waves": (), "window": None})
