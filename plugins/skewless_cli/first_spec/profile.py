"""The profile of an input: its columns, their types and, in a sample of its rows, their values and heaviest value."""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from skewless.documents.job import Job, Source, Unit
from skewless.errors import InputError
from skewless.spec.input import OWN_PREFIX, Input
from skewless.spec.part import Part, resolve_path
from skewless.spec.spec import JobSpec
from skewless_cli.first_spec.layout import (
    TEXT_KINDS,
    Days,
    TextKind,
    csv_options,
    days_of,
    files_at,
    format_of,
    head_of,
    is_delta,
    is_table_name,
    text_kind,
)
from skewless_spark.aggregates.keys import KEY_TYPES
from skewless_spark.prepare.sampled_keys import SAMPLED_ROWS, spread_over
from skewless_spark.session.session import build_session
from skewless_spark.sources.formats.column_types import UNSUPPORTED, fields_within, type_within
from skewless_spark.sources.formats.texts import first_row
from skewless_spark.sources.lake.table_inputs import LakeTable
from skewless_spark.sources.listing import Listing, list_input
from skewless_spark.sources.locations import resolved
from skewless_spark.sources.ranges import partition_value, read_unit
from skewless_spark.sources.unit_reading import ORIGIN, source_rows

#: The share of the input in the smallest wave, by default: sources are cut as in a run.
_SHARE = 0.01
_NUMBERS = ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal")
#: Types of keys that people group by; the others serve where there is nothing else.
_KEYS = ("string", "tinyint", "smallint", "int", "bigint", "boolean", "date")
#: How names of columns begin that are Spark's and ours.
_OWN = (OWN_PREFIX, "_metadata")
_TIMES = ("date", "timestamp", "timestamp_ntz")
#: Names of columns that tell things apart, and are no quantities.
_IDENTITY = re.compile(
    r"(^|_)(id|uuid|guid|key|code|hash|token|session|user|visitor|customer|account|device|ip|email|number|zip)s?$"
)
#: A text with so many different values per row is one, too.
_VALUES_PER_ROW = 0.05


@dataclass(frozen=True)
class Column:
    """A column of the input, and what its values in the sample are like.

    Attributes:
        values: how many different ones there are, null included.
        heaviest: the part of the rows that the most frequent one has.
        constant: whether each file has one value only, by the name of its folder.
        texts: the values themselves, of texts.
    """

    name: str
    kind: str
    values: int = 0
    heaviest: float = 0.0
    constant: bool = False
    texts: pa.ChunkedArray | None = None

    @property
    def skew(self) -> float:
        """How much there is to gain by planning for it as a key: its heaviest value, among many others."""
        return self.heaviest * math.log(max(1, self.values))

    @property
    def is_number(self) -> bool:
        """Whether sums of it are taken."""
        return self.kind.partition("(")[0] in _NUMBERS

    @property
    def is_time(self) -> bool:
        """Whether it is a day or a moment."""
        return self.kind in _TIMES

    @property
    def named_identity(self) -> bool:
        """Whether its name is that of what tells things apart."""
        plain = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", self.name).lower()
        return bool(_IDENTITY.search(plain))

    def is_identity(self, rows: int) -> bool:
        """Whether its different values are worth counting."""
        many = self.kind == "string" and self.values > max(2.0, _VALUES_PER_ROW * rows)
        whole = self.kind in {"string", "tinyint", "smallint", "int", "bigint"}
        return whole and not self.constant and (self.named_identity or many)


@dataclass(frozen=True)
class Profile:
    """What was found out about an input.

    Attributes:
        fields: of the section ``input`` of a spec.
        day: a day that the input has, the last; None if its days are not told apart.
        days_by: the column by which a table has its days.
    """

    fields: dict[str, Any]
    columns: tuple[Column, ...]
    rows: int
    listed_rows: int
    day: dt.date | None = None
    days_by: str = ""

    @property
    def key_candidates(self) -> list[Column]:
        """The columns that rows may be grouped by, the most skewed first; quantities and days come behind all others.

        Raises:
            InputError: there is none.
        """
        fit = [one for one in self.columns if one.kind.partition("(")[0] in KEY_TYPES and one.name.lower() != "date"]
        apart = [one for one in fit if 1 < one.values < max(2, self.rows)]
        plain = [one for one in apart if one.kind in _KEYS]
        found = plain or apart or fit
        if not found:
            raise InputError(
                f"input {self.fields['path']}", "a column that can be a key", "none of such a type", "write a map step"
            )
        return sorted(found, key=lambda one: (_is_quantity(one) or one.is_time or one.kind == "boolean", -one.skew))


def _is_quantity(one: Column) -> bool:
    return one.is_number and not one.named_identity and not one.constant


def profile_of(given: str, root: str, where: str) -> Profile:
    """Look at an input: list it, and read a sample of its rows.

    Args:
        given: a path or the name of a table, as a spec has it.

    Raises:
        InputError: there is nothing that can be read.
        SpecError: a package or a catalog is not set up.
    """
    if is_table_name(given):
        return _of_table("iceberg", given, root, where)
    path = resolved(given, root, where)
    if is_delta(path):
        return _of_table("delta", given, root, where)
    files = files_at(path)
    fields: dict[str, Any] = {"path": given, "format": format_of(path, files)}
    days = days_of(path, files)
    if days is not None:
        fields["path"] = days.path if path == given else days.path.removeprefix(path.removesuffix(given))
        path = resolve_path(days.path, Part(days.last), where)
        files = files_at(path)
    if fields["format"] == "csv":
        filled = next((file for file in files if head_of(file)), files[0])
        options = csv_options(filled)
        fields |= {"options": options} if options else {}
        if "header" in options:
            names = first_row(
                filled, {"sep": ",", "escape": '"', **{one: str(value) for one, value in options.items()}}
            )
            fields["columns"] = {f"c{at + 1}": "string" for at in range(len(names))}
    listing = list_input(Input.model_validate(fields), path, _SHARE)
    if fields["format"] == "json" and listing.source.columns:
        fields["columns"] = dict(listing.source.columns)
    found = _profile(fields, listing, _outside(days))
    if fields["format"] in {"csv", "json"}:
        found = _typed(found, keeps_texts=fields.get("options", {}).get("header", True))
    if days is None:
        return found
    return replace(found, day=days.last)


def _typed(profile: Profile, *, keeps_texts: bool) -> Profile:
    """With the types of columns that are texts in CSV or JSON, as all of them in the sample have one."""
    kinds = TEXT_KINDS if profile.fields["format"] == "csv" else [one for one in TEXT_KINDS if one.kind in _TIMES]
    columns, found, options = list(profile.columns), dict[str, TextKind](), dict[str, str]()
    for one in profile.columns:
        if one.kind == "string" and not one.constant and one.texts is not None:
            kind = text_kind(one.texts, kinds)
            # One format of dates serves all of them.
            if kind and all(options.get(name, value) == value for name, value in kind.options.items()):
                found[one.name] = kind
                options |= kind.options
    if "dateFormat" in options:
        found = {name: kind for name, kind in found.items() if kind.kind != "date" or kind.options}
    columns = [replace(one, kind=found[one.name].kind) if one.name in found else one for one in columns]
    fields = dict(profile.fields)
    if profile.fields["format"] == "json":
        declared = {
            name: found[name].kind if name in found else kind for name, kind in fields.get("columns", {}).items()
        }
    else:
        declared = {
            one.name: one.kind for one in columns if not one.constant and (one.name in found or not keeps_texts)
        }
    more = {**fields.pop("options", {}), **options}
    fields |= ({"options": more} if more else {}) | ({"columns": declared} if declared else {})
    return replace(profile, fields=fields, columns=tuple(columns))


def _outside(days: Days | None) -> set[str]:
    """The partition columns that a dated path names: one value in each run."""
    return set() if days is None else {piece.partition("=")[0] for piece in days.path.split("/") if "={date" in piece}


def _of_table(kind: str, given: str, root: str, where: str) -> Profile:
    fields = {"path": given, "format": kind}
    location = "" if is_table_name(given) else resolved(given, root, where)
    # A part is asked for, and plays no part in the latest state of a table.
    table = LakeTable.pinned(Input.model_validate(fields), Part(dt.date(2026, 1, 1)), root, location)
    listing, snapshot = table.listing(_SHARE), table.snapshot
    for column in snapshot.parted:
        days = [_day(file.told.get(column)) for file in snapshot.files]
        known = [day for day in days if day is not None]
        if days and len(known) == len(days):
            # A day has one value, and the moments of a day many.
            outside = {column} if snapshot.kinds[column] in {"date", "string"} else set()
            found = _profile({**fields, "parts": column}, listing, outside)
            return replace(found, day=max(known), days_by=column)
    return _profile(fields, listing, set())


def _day(text: str | None) -> dt.date | None:
    with suppress(ValueError):
        return dt.date.fromisoformat(text) if text else None
    return None


def _profile(fields: dict[str, Any], listing: Listing, outside: set[str]) -> Profile:
    """The columns of a listing, but for some, as a sample of its rows has them."""
    source, units = listing.source, spread_over([unit for unit in listing.units if unit.rows])
    types = {**source.columns, **source.partition_columns}
    lower = [name.lower() for name in types]
    # No job may read a column that Spark confuses with another one.
    confused = {name for name in types if lower.count(name.lower()) > 1 or name.lower().startswith(_OWN)}
    left_out = outside | confused
    within = {name: type_within(types, way) for name, way in fields_within(types).items()}
    kinds = {name: kind for name, kind in {**types, **within}.items() if not kind.startswith("struct<")}
    names = [name for name, kind in kinds.items() if name not in left_out and not kind.startswith(UNSUPPORTED)]
    sample = _sample(fields, source, units, names) if units and names else None
    found = tuple(_column(name, kinds[name], sample, constant=name in source.partition_columns) for name in names)
    listed = sum(unit.rows or 0 for unit in listing.units)
    return Profile(fields, found, 0 if sample is None else len(sample), listed)


def _sample(fields: dict[str, Any], source: Source, units: Sequence[Unit], names: Sequence[str]) -> pa.Table:
    """Some rows of some source partitions, as a run reads them."""
    if source.format == "parquet":
        with suppress(InputError):  # some columns are read right by Spark alone
            return _first_rows(source, units, names)
    spark = SparkSession.getActiveSession() or build_session("skewless init")
    spec = JobSpec.model_construct(input=Input.model_validate(fields), map=None)
    job = Job.model_construct(
        spec=spec, units=tuple(units), source=source, input_path=units[0].path, key_types={}, column_types={}
    )
    rows = source_rows(spark, job, range(len(units)), names, located=False).drop(ORIGIN).limit(SAMPLED_ROWS)
    return rows.toArrow().rename_columns(list(names))


def _first_rows(source: Source, units: Sequence[Unit], names: Sequence[str]) -> pa.Table:
    """The first rows of each source partition, without a JVM."""
    ways = {name: fields_within(source.columns).get(name, (name,)) for name in names}
    roots = list(dict.fromkeys(way[0] for way in ways.values() if way[0] not in source.partition_columns))
    parts, rows = [], math.ceil(SAMPLED_ROWS / len(units))
    for unit in units:
        first = unit.span[0] if unit.span else 0
        group = unit.model_copy(update={"span": (first, first + 1)})
        for batch in islice(read_unit(group, source, roots), 1):
            own = batch.slice(0, rows)
            columns = [
                pa.repeat(partition_value(unit, source, name), len(own)) if name in source.partition_columns
                else pc.struct_field(own.column(way[0]), list(way[1:])) if way[1:] else own.column(name)
                for name, way in ways.items()
            ]  # fmt: skip
            parts.append(pa.table(columns, names=list(names)))
    return pa.concat_tables(parts, promote_options="permissive")


def _column(name: str, kind: str, sample: pa.Table | None, *, constant: bool) -> Column:
    if sample is None or kind.startswith(("array<", "map<")):
        return Column(name, kind, constant=constant)
    values = sample.column(name)
    counts = pc.value_counts(values.combine_chunks()).field("counts")
    heaviest = (pc.max(counts).as_py() or 0) / max(1, len(sample))
    return Column(name, kind, len(counts), heaviest, constant, values if kind == "string" else None)
