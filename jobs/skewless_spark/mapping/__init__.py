"""The map step: one row in, any number out, before rows are routed: a query, or a registered Python mapper.

One is shipped: ``tokens``, every match of a pattern in lines of text, with its file, line and column.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BaseModel, Field, ValidationError, field_validator
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_type

from skewless.document import sentence_of
from skewless.documents.job import Job
from skewless.errors import InputError, MapError, SkewlessError, SpecError, nearest
from skewless.mapping import MapCall, PythonMapper, mapper_named, places
from skewless.spec.calls import Map
from skewless_spark.mapping import query_mapper
from skewless_spark.mapping.query_mapper import Mapped
from skewless_spark.session.session import map_in_batches

Batches = Iterable[pa.RecordBatch]
_FILE, _ROW = "_metadata.file_path", "_metadata.row_index"


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


class TokensOptions(BaseModel, extra="forbid", frozen=True, strict=True):
    """What a token is."""

    pattern: str = Field(default=r"[A-Za-z_]\w*", min_length=1)
    column: str = "value"
    below: str = ""
    """Files are named by their path below the last folder of this name; if empty, by the whole path."""

    @field_validator("pattern")
    @classmethod
    def _compiles(cls, pattern: str) -> str:
        try:
            re.compile(pattern)
        except re.error as err:
            raise ValueError(f"should be a regular expression of Python ({err})") from None
        return pattern


#: ``line`` is counted from 1 and null where a file is cut, ``column`` in characters from 0.
_TOKENS_SCHEMA = pa.schema(
    [("token", pa.string()), ("file", pa.string()), ("line", pa.int64()), ("column", pa.int32())]
)


def _tokens_call(options: TokensOptions) -> MapCall:
    find = re.compile(options.pattern).finditer
    folder = f"/{options.below}/"

    def tokens(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, npt.NDArray[np.int64]]:
        # Lines are bytes that need not be UTF-8.
        lines = batch.column(options.column).cast(pa.binary()).to_pylist()
        found: list[str] = []
        columns: list[int] = []
        counts = np.zeros(len(lines), dtype=np.int64)
        for number, line in enumerate(lines):
            if line:
                matches = list(find(line.decode("utf-8", "replace")))
                found += [one[0] for one in matches]
                columns += [one.start() for one in matches]
                counts[number] = len(matches)
        rows = np.repeat(np.arange(len(lines), dtype=np.int64), counts)
        taken = pa.array(rows)
        files = batch.column(_FILE).dictionary_encode()
        own = [name.rpartition(folder)[2] if options.below else name for name in files.dictionary.to_pylist()]
        names = pa.array(own, pa.string())
        line_numbers = pc.add(batch.column(_ROW), 1)
        arrays = [
            pa.array(found, pa.string()),
            names.take(files.indices.take(taken)),
            line_numbers.take(taken),
            pa.array(columns, pa.int32()),
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=_TOKENS_SCHEMA), rows

    return tokens


TOKENS = PythonMapper(
    name="tokens", options=TokensOptions, columns=lambda options: (options.column, _FILE, _ROW),
    schema=lambda _: _TOKENS_SCHEMA, create=_tokens_call,
)  # fmt: skip
