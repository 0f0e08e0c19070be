"""What a result is compared with, as a user names it: files, a table, a query, or a fresh computation of it."""

from collections.abc import Mapping
from functools import reduce
from typing import Any, NamedTuple

from pydantic import ValidationError
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from skewless.document import sentence_of
from skewless.documents.job import Job, Unit
from skewless.errors import InputError, SpecError, first_line
from skewless.spec.part import resolve_path
from skewless.spec.spec import FRESH, JobSpec, input_of, is_query
from skewless_spark.prepare.freezing import listed, reading, refuse_twins
from skewless_spark.result.merge import evaluated_rows
from skewless_spark.session.session import build_session, session_in_jvm
from skewless_spark.sources.formats.column_types import UNSUPPORTED
from skewless_spark.sources.formats.input_files import quoted
from skewless_spark.sources.identity import require_unchanged
from skewless_spark.sources.input_columns import named_as, values_of_folders
from skewless_spark.sources.unit_reading import read_units
from skewless_spark.states.job_columns import JobColumns
from skewless_spark.windows.kept_states import with_window

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
