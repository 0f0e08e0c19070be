"""The result of another job, as a user names it: files, a table, or a query."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from pydantic import ValidationError
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from skewless.document import sentence_of
from skewless.errors import InputError, SpecError
from skewless.spec.part import Part, resolve_path
from skewless.spec.shadow import input_of, is_query
from skewless.spec.spec import JobSpec
from skewless_spark.aggregates.key_text import KEY_TYPES
from skewless_spark.prepare.freezing import freeze, listed
from skewless_spark.session.session import session_in_jvm
from skewless_spark.sources.formats.spark_types import UNSUPPORTED
from skewless_spark.sources.reading import read_units
from skewless_spark.sources.uris import quoted

#: What names the other result, as sentences say.
OPTION, FIELD = "--with", "shadow.with"
#: Formats whose files do not say which types their columns have.
_UNTYPED = ("csv", "json")


class OtherSide(NamedTuple):
    """The rows of another job's result.

    Attributes:
        rows: of those of our columns that the result has, by their names; without those that only a query reads.
        columns: the Spark SQL type of each of its columns.
        name: as it was given, with the part put in.
    """

    rows: DataFrame
    columns: dict[str, str]
    name: str = ""
    where: str = OPTION


def other_side(
    spark: SparkSession, given: str, part: Part, root: str, ours: Mapping[str, str], where: str = OPTION
) -> OtherSide:
    """The result that an option, or a field of a spec, names.

    Args:
        given: a query that begins with SELECT, WITH, FROM, VALUES or TABLE; or ``FORMAT:PATH``, with a format and a
            path as ``input`` of a spec has them; or a path whose ending tells its format, Parquet if it does not. In
            each of them ``{date}`` and ``{hour}`` are the part.
        ours: the Spark SQL type of each column that is compared; CSV and JSON are read with these.

    Raises:
        SpecError: nothing is meant by what is given.
        InputError: the query fails, or there is nothing to read.
    """
    name = resolve_path(given, part, where)
    if is_query(given):
        return _of_query(spark, name, ours, where)
    raw: dict[str, Any] = {"name": "other", "input": input_of(given), "output": {"path": "/unused"}}
    if raw["input"]["format"] in _UNTYPED:
        raw["input"]["columns"] = dict(ours)
    spec = _spec_of(raw, next(iter(ours)), {}, where)
    try:
        found = listed(spark, spec, part, root, where)
    except InputError as err:  # which takes it for the job's own input
        raise InputError(f"{where}, {err.where}", err.required, err.came, err.hint) from None
    listing = found[1]
    types = {**listing.source.columns, **listing.source.partition_columns}
    read = [name for name in ours if name in types and not types[name].startswith(UNSUPPORTED)]
    key = next((name for name in read if types[name].split("(")[0] in KEY_TYPES), None)
    if key is None:
        raise InputError(f"{where} {given}", f"a result with columns {', '.join(ours)}", ", ".join(types) or "none")
    spec = _spec_of(raw, key, dict.fromkeys(read, "count"), where)
    job = freeze(spec, part.date, root, where, hour=part.hour, found=found)
    rows = read_units(spark, job, range(len(job.units)), read, located=False).drop("origin")
    return OtherSide(rows.toDF(*read), types, name, where)


def require_parsed(spark: SparkSession, given: str, where: str) -> None:
    """Refuse a query that Spark cannot parse; what it names need not be there yet.

    Raises:
        SpecError: says where Spark stumbles.
    """
    if is_query(given):
        parser = session_in_jvm(spark).sessionState().sqlParser()
        try:
            parser.parsePlan(f"SELECT * FROM (\n{given}\n)")  # noqa: S608  # nothing is run
        except ParseException as err:
            raise SpecError(f"{where}, the query", "one that Spark can parse", str(err).splitlines()[0]) from None


def _of_query(spark: SparkSession, query: str, ours: Mapping[str, str], where: str) -> OtherSide:
    try:
        found = spark.sql(f"SELECT * FROM (\n{query}\n)")  # noqa: S608  # what writes cannot stand there
    except (AnalysisException, ParseException) as err:
        raise InputError(f"{where}, the query", "one that Spark can run", str(err).splitlines()[0]) from None
    types = {field.name: field.dataType.simpleString() for field in found.schema.fields}
    if len(types) < len(found.columns):
        raise InputError(f"{where}, the query", "columns whose names differ", ", ".join(found.columns))
    return OtherSide(found.select(*(F.col(quoted(name)) for name in types if name in ours)), types, query, where)


def _spec_of(raw: dict[str, Any], key: str, counted: Mapping[str, str], where: str) -> JobSpec:
    counts = {f"n{number}": {"function": how, "column": name} for number, (name, how) in enumerate(counted.items())}
    try:
        return JobSpec.model_validate({**raw, "key": [key], "aggregates": {"n": "count", **counts}})
    except ValidationError as err:
        raise sentence_of(err, JobSpec, where, SpecError) from None
