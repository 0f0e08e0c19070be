"""A table of Spark's catalog as the files that hold it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import unquote

from pydantic import ValidationError
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from skewless.document import sentence_of
from skewless.errors import InputError
from skewless.run.objects.location import as_written, open_location
from skewless.spec.input import Input
from skewless_spark.sources.formats.spark_types import UNSUPPORTED
from skewless_spark.sources.listing import Listing, list_input
from skewless_spark.sources.schemas import widest

_FORMATS = ("parquet", "orc", "csv", "json", "text")
#: Options of a table that do not change how its files are read.
_HARMLESS = frozenset({"path", "serialization.format", "compression"})
#: Parts of types whose rules files do not have: Spark pads CHAR, and compares by a collation.
_NOT_IN_FILES = re.compile(r"(?<!var)char\(\d+\)|string collate \w+")
#: In the metadata of a column of Spark's: its type as it was declared, if that is a CHAR or a VARCHAR.
_AS_DECLARED = "__CHAR_VARCHAR_TYPE_STRING"

_DECLARE = "declare it as a STRING, or read the files by path"


def list_table(spark: SparkSession, given: Input, share: float) -> tuple[str, Listing]:
    """List a table; an ``InputError`` if the table does not exist, or its files cannot be read here."""
    name = given.path
    at = f"input {name}"
    try:
        table = spark.table(name)
        told = {row["col_name"]: row["data_type"] for row in spark.sql(f"DESCRIBE TABLE EXTENDED {name}").collect()}
        partitions = [column.name for column in spark.catalog.listColumns(name) if column.isPartition]
    except AnalysisException as err:
        raise InputError(at, "a table that Spark knows", str(err).splitlines()[0][:200], "check the name") from None
    provider = str(told.get("Provider", "")).lower()
    if str(told.get("Type", "")) == "VIEW" or provider not in _FORMATS:
        came = (
            "a view" if told.get("Type") == "VIEW" or not provider else f"one of the provider {provider or 'unknown'!r}"
        )
        raise InputError(
            at, f"a table of files: {', '.join(_FORMATS)}", came, "write it out, or read its files by path"
        )
    # A schema has a CHAR as a string, with a note of what it is.
    kinds = [(field.name, field.metadata.get(_AS_DECLARED, field.dataType.simpleString())) for field in table.schema]
    told_types = {name: kind for name, kind in kinds if _NOT_IN_FILES.search(kind)}
    declared = {field.name: _NOT_IN_FILES.sub("string", field.dataType.simpleString()) for field in table.schema}
    if told_types and provider in {"csv", "json"}:  # which are read whole
        column, kind = next(iter(told_types.items()))
        raise InputError(at, "columns whose values are those of its files", f"{column!r} of type {kind}", _DECLARE)
    inside = {column: kind for column, kind in declared.items() if column not in partitions}
    location, files = _files(str(told["Location"]), table.inputFiles())
    as_files = _as_files(provider, location, inside, _options(spark, name), at)
    listing = list_input(as_files, location, share, files, {one: declared[one] for one in partitions})
    other = next((list(unit.values) for unit in listing.units if list(unit.values) != partitions), None)
    if other is not None:
        raise InputError(at, f"folders named after {partitions}", str(other), "read it by path")
    odd = next((names for names in listing.own.values() if provider == "csv" and list(names) != list(inside)), None)
    if odd is not None:  # Spark passes over headers, and reads columns by their places
        raise InputError(at, f"headers of the columns {list(inside)}", str(list(odd))[:300], "read its files by path")
    refused = {one: f"{UNSUPPORTED}{kind}, whose rules files do not have" for one, kind in told_types.items()}
    columns = {one: _column(one, kind, listing.source.columns.get(one, kind), at) for one, kind in inside.items()}
    of_folders = listing.source.partition_columns
    kept = {
        "columns": {one: refused.get(one, kind) for one, kind in columns.items()},
        "partition_columns": {one: refused.get(one, kind) for one, kind in of_folders.items()},
    }
    return location, replace(listing, source=listing.source.model_copy(update=kept))


def _column(name: str, kind: str, own: str, at: str) -> str:
    """The type of a column of a table. Files may have a narrower one, or none: null, as in Spark."""
    if own.startswith(UNSUPPORTED):
        return own
    if widest(own, kind) != kind:
        raise InputError(at, f"files with {name!r} of type {kind}", own, "rewrite the table")
    return kind


def _files(location: str, paths: list[str]) -> tuple[str, list[str]]:
    """Spark's URIs, percent-encoded, as paths."""
    place = unquote(location)
    fs, root = open_location(place)
    found = [str(fs._strip_protocol(unquote(path))) for path in paths]  # noqa: SLF001  # fsspec's own name for it
    return as_written(fs, place, root.rstrip("/")), found


def _options(spark: SparkSession, name: str) -> Mapping[str, str]:
    described = json.loads(spark.sql(f"DESCRIBE TABLE EXTENDED {name} AS JSON").collect()[0][0])
    return {key.lower(): str(value) for key, value in described.get("storage_properties", {}).items()}


def _as_files(provider: str, location: str, columns: Mapping[str, str], options: Mapping[str, str], at: str) -> Input:
    raw: dict[str, Any] = {"path": location, "format": provider}
    if provider in {"csv", "json"}:
        raw["columns"] = dict(columns)
    if provider == "text" and list(columns) != ["value"]:
        raise InputError(at, "a text table with the column 'value'", str(list(columns)))
    own = {name: value for name, value in options.items() if name not in _HARMLESS}
    # What a table does not say is as Spark has it.
    spark = {"header": "false", "escape": "\\", "nullValue": ""} if provider == "csv" else {}
    if own or spark:
        raw["options"] = {**spark, **own}
    try:
        return Input.model_validate(raw)
    except ValidationError as err:
        raise sentence_of(err, Input, at, InputError) from None
