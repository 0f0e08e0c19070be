"""The map step: one row in, any number out, before rows are routed: a query, or a registered Python mapper."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pydantic import BaseModel, ValidationError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_type

from skewless.document import sentence_of
from skewless.documents.job import Job
from skewless.errors import InputError, MapError, SkewlessError, SpecError, nearest
from skewless.mapping import PythonMapper, mapper_named, places
from skewless.spec.calls import Map
from skewless_spark.mapping import query_mapper
from skewless_spark.mapping.query_mapper import Mapped
from skewless_spark.session.session import map_in_batches

Batches = Iterable[pa.RecordBatch]


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
        return _types_of_mapper(given, types, at)
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
        fields = [f"c{number} {types[name]}" for number, name in enumerate(columns)]
        # The workers get the mapper by its name.
        mapped = _map_batches(given, list(names), list(columns), origin, index)
        return map_in_batches(rows, mapped, ", ".join([*fields, f"{origin} bigint", f"{index} int"]))
    return query_mapper.apply(given.sql, rows, names, columns, origin, index, lookups)


def bound_mapper(given: Map, at: str) -> tuple[PythonMapper, BaseModel]:
    """The mapper that a spec names, with its options validated.

    Raises:
        SpecError: the mapper or one of the options does not exist.
    """
    where = f"{at}, field map"
    mapper = mapper_named(str(given.mapper), where)
    known = list(mapper.options.model_fields)
    unknown = next((name for name in given.options if name not in known), None)
    if unknown is not None:
        raise SpecError(
            where, f"a known option of {mapper.name!r}", repr(unknown), nearest(unknown, [*known, "mapper"])
        )
    try:
        return mapper, mapper.options.model_validate(given.options)
    except ValidationError as err:
        raise sentence_of(err, mapper.options, where, SpecError) from None


def _types_of_mapper(given: Map, types: Mapping[str, str], at: str) -> Mapped:
    mapper, options = bound_mapper(given, at)
    reads = tuple(mapper.columns(options))
    missing = next((name for name in reads if types and name not in types), None)
    if missing is not None:
        raise InputError(f"{at}, field map", f"a column for {mapper.name!r}", repr(missing), nearest(missing, types))
    made = {field.name: from_arrow_type(field.type).simpleString() for field in mapper.schema(options)}
    return Mapped(made, reads, {}, {})


def _map_batches(
    given: Map, names: Sequence[str], columns: Sequence[str], origin: str, index: str
) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    def mapped(batches: Batches) -> Iterator[pa.RecordBatch]:
        mapper, options = bound_mapper(given, "job.json")
        call, schema, reads = mapper.create(options), mapper.schema(options), mapper.columns(options)
        out = [*(f"c{number}" for number in range(len(columns))), origin, index]
        for batch in batches:
            seen = [batch.column(f"s{names.index(name)}") for name in reads]
            rows, source_rows = _called(mapper, call, pa.RecordBatch.from_arrays(seen, names=list(reads)))
            source, place = places(rows, source_rows, batch.num_rows, mapper, schema)
            origins = batch.column(origin).take(pa.array(source))
            arrays = [*(rows.column(name) for name in columns), origins, pa.array(place)]
            yield pa.RecordBatch.from_arrays(arrays, names=out)

    return mapped


def _called(mapper: PythonMapper, call: Any, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, Any]:
    try:
        rows, source_rows = call(batch)
    except SkewlessError:
        raise
    except Exception as err:
        text = " ".join(str(err).split())[:300]
        raise MapError(
            f"mapper {mapper.name!r}", "mapped rows", f"{type(err).__name__}: {text}", "nothing was committed"
        ) from err
    return rows, source_rows
