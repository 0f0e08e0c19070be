"""Runs a registered Python mapper over the rows of a wave."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pydantic import BaseModel, ValidationError
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_type

from skewless.document import sentence_of
from skewless.errors import InputError, MapError, SkewlessError, SpecError, nearest
from skewless.mapping import PythonMapper, mapper_named, places
from skewless.spec.calls import Map
from skewless_spark.mapping.query_mapper import Mapped
from skewless_spark.session.session import map_in_batches

Batches = Iterable[pa.RecordBatch]


def bound(given: Map, at: str) -> tuple[PythonMapper, BaseModel]:
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


def types_of(given: Map, types: Mapping[str, str], at: str) -> Mapped:
    """The mapped columns of a mapper and the columns it reads; see ``mapping.map_types``."""
    mapper, options = bound(given, at)
    reads = tuple(mapper.columns(options))
    missing = next((name for name in reads if types and name not in types), None)
    if missing is not None:
        raise InputError(f"{at}, field map", f"a column for {mapper.name!r}", repr(missing), nearest(missing, types))
    made = {field.name: from_arrow_type(field.type).simpleString() for field in mapper.schema(options)}
    return Mapped(made, reads, {}, {})


def apply(
    given: Map, rows: DataFrame, names: Sequence[str], columns: Sequence[str], types: Mapping[str, str], origin: str,
    index: str,
) -> DataFrame:  # fmt: skip
    """Map rows; see ``mapping.mapped_rows``. The workers get the mapper by its name."""
    fields = [*(f"c{number} {types[name]}" for number, name in enumerate(columns)), f"{origin} bigint", f"{index} int"]
    mapped = _map_batches(given, list(names), list(columns), origin, index)
    return map_in_batches(rows, mapped, ", ".join(fields))


def _map_batches(
    given: Map, names: Sequence[str], columns: Sequence[str], origin: str, index: str
) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    def mapped(batches: Batches) -> Iterator[pa.RecordBatch]:
        mapper, options = bound(given, "job.json")
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
