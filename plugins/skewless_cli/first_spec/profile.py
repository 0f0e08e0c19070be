"""The profile of an input: its columns, their types and, in a sample of its rows, their values and heaviest value."""

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
    GERMAN_NUMBER,
    TEXT_KINDS,
    TextKind,
    csv_fields,
    days_of,
    files_at,
    format_of,
    head_of,
    is_table_name,
    text_kind,
)
from skewless_spark.aggregates.keys import KEY_TYPES
from skewless_spark.prepare.prepare import SAMPLED_ROWS, spread_over
from skewless_spark.session.session import build_session
from skewless_spark.session.versions import to_arrow
from skewless_spark.sources.formats.column_types import UNSUPPORTED, fields_within, type_within
from skewless_spark.sources.formats.input_files import open_input
from skewless_spark.sources.lake.table_inputs import LakeTable
from skewless_spark.sources.listing import Listing, list_input
from skewless_spark.sources.locations import resolved
from skewless_spark.sources.unit_reading import ORIGIN, source_rows
from skewless_spark.sources.worker_files import partition_value, read_unit

#: The share of the input in the smallest wave, by default: sources are cut as in a run.
_SHARE = 0.01
_NUMBERS = ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal")
_WHOLE = ("string", "tinyint", "smallint", "int", "bigint")
#: How names of columns begin that are Spark's and ours.
_OWN = (OWN_PREFIX, "_metadata")
_TIMES = ("date", "timestamp", "timestamp_ntz")
#: Names of columns that tell things apart, and are no quantities.
_IDENTITY = re.compile(
    r"(^|_)(id|uuid|guid|key|code|hash|token|session|user|visitor|customer|account|device|ip|email|number|zip|no|order"
    r"|sku|ean|isbn|iban|phone|year|month|jahr|monat|plz|artikel|kunde|filiale|\w*(nr|nummer))s?$"
)
#: A text with so many different values per row is one, too.
_VALUES_PER_ROW = 0.05


@dataclass(frozen=True)
class Column:
    """A column of the input, and what its values in the sample are like."""

    name: str
    kind: str
    values: int = 0
    """How many different ones there are, null included."""
    heaviest: float = 0.0
    """The part of the rows that the most frequent one has."""
    constant: bool = False
    """Whether each file has one value only, by the name of its folder."""
    texts: pa.ChunkedArray | None = None
    """The values themselves, of texts within files."""

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
        return bool(_IDENTITY.search(re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", self.name).lower()))

    def is_identity(self, rows: int) -> bool:
        """Whether its different values are worth counting."""
        many = self.kind == "string" and self.values > max(2.0, _VALUES_PER_ROW * rows)
        return self.kind in _WHOLE and not self.constant and (self.named_identity or many)

    def rank_as_key(self, rows: int) -> tuple[bool, bool, bool, float]:
        """Ascends from what people group by, the most skewed first, to quantities, days, constants and numbers of rows.

        Skew is what there is to gain by planning for it: its heaviest value, among many others.
        """
        quantity = self.is_number and not self.named_identity and not self.constant
        skew = self.heaviest * math.log(max(1, self.values))
        usual = self.kind in {*_WHOLE, "boolean", "date"}
        return not 1 < self.values < max(2, rows), not usual, quantity or self.is_time or self.kind == "boolean", -skew


@dataclass(frozen=True)
class Profile:
    """What was found out about an input."""

    fields: dict[str, Any]
    """Of the section ``input`` of a spec."""
    columns: tuple[Column, ...]
    rows: int
    listed_rows: int
    day: dt.date | None = None
    """A day that the input has, the last; None if its days are not told apart."""
    days_by: str = ""
    """The column by which a table has its days."""
    unread: tuple[str, ...] = ()
    """Columns that no job may read, each with why."""

    @property
    def key_candidates(self) -> list[Column]:
        """The columns that rows may be grouped by, the best first."""
        fit = [one for one in self.columns if one.kind.partition("(")[0] in KEY_TYPES and one.name.lower() != "date"]
        if not fit:
            raise InputError(
                f"input {self.fields['path']}", "a column that can be a key", "none of such a type", "write a map step"
            )
        return sorted(fit, key=lambda column: column.rank_as_key(self.rows))


def profile_of(path: str, root: str, where: str) -> Profile:
    """Look at an input: list it, and read a sample of its rows.

    Args:
        path: or the name of a table, as a spec has it.
    """
    if is_table_name(path):
        return _of_table("iceberg", path, root, where)
    place = resolved(path, root, where)
    fs, inner = open_input(place)
    if fs.exists(f"{inner}/_delta_log"):
        return _of_table("delta", path, root, where)
    files = files_at(place)
    fields: dict[str, Any] = {"path": path, "format": format_of(place, files)}
    outside, days = set[str](), days_of(place, files)
    if days is not None:
        fields["path"] = days.path if place == path else days.path.removeprefix(place.removesuffix(path))
        # The partition columns that a dated path names have one value in each run.
        outside = {piece.partition("=")[0] for piece in days.path.split("/") if "={date" in piece}
        place = resolve_path(days.path, Part(days.last), where)
        files = files_at(place)
    if fields["format"] == "csv":
        fields |= csv_fields(next((file for file in files if head_of(file)), files[0]))
    listing = list_input(Input.model_validate(fields), place, _SHARE)
    if fields["format"] == "json" and listing.source.columns:
        fields["columns"] = dict(listing.source.columns)
    profile = _profile(fields, listing, outside)
    if fields["format"] in {"csv", "json"}:
        profile = _typed(profile)
    return profile if days is None else replace(profile, day=days.last)


def _typed(profile: Profile) -> Profile:
    """With the types of columns that are texts in CSV or JSON, as all of them in the sample have one."""
    fields, types = dict(profile.fields), dict[str, TextKind]()
    kinds = TEXT_KINDS if fields["format"] == "csv" else [kind for kind in TEXT_KINDS if kind.kind in _TIMES]
    options, declared = dict(fields.pop("options", {})), dict(fields.pop("columns", {}))
    for column in profile.columns:
        if column.texts is not None and (fields["format"] == "csv" or column.name in declared):
            kind = text_kind(column.texts, kinds)
            # One format of dates serves all of them.
            if kind and all(options.get(name, value) == value for name, value in kind.options.items()):
                types[column.name] = kind
                options |= kind.options
    for column in profile.columns:
        if column.name in types and types[column.name].kind == "double" and {"locale", "dateFormat"} & options.keys():
            if (german := text_kind(column.texts, [GERMAN_NUMBER])) and "locale" in options:
                types[column.name] = german
            elif german:
                del types[column.name]  # nothing tells a thousand from a fraction: a text
    if "dateFormat" in options:
        types = {name: kind for name, kind in types.items() if kind.kind != "date" or kind.options}
    declared |= {name: kind.kind for name, kind in types.items()}
    columns = [replace(one, kind=types[one.name].kind) if one.name in types else one for one in profile.columns]
    fields |= ({"options": options} if options else {}) | ({"columns": declared} if declared else {})
    return replace(profile, fields=fields, columns=tuple(columns))


def _of_table(kind: str, path: str, root: str, where: str) -> Profile:
    fields = {"path": path, "format": kind}
    location = "" if is_table_name(path) else resolved(path, root, where)
    # A part is asked for, and plays no part in the latest state of a table.
    table = LakeTable.pinned(Input.model_validate(fields), Part(dt.date(2026, 1, 1)), root, location)
    listing, snapshot = table.listing(_SHARE), table.snapshot
    for column in snapshot.parted:
        days = [_day(file.told.get(column)) for file in snapshot.files]
        known = [day for day in days if day is not None]
        if days and len(known) == len(days):
            # A day has one value, and the moments of a day many.
            outside = {column} if snapshot.kinds[column] in {"date", "string"} else set()
            profile = _profile({**fields, "parts": column}, listing, outside)
            return replace(profile, day=max(known), days_by=column)
    return _profile(fields, listing, set())


def _day(text: str | None) -> dt.date | None:
    with suppress(ValueError):
        return dt.date.fromisoformat(text) if text else None
    return None


def _profile(fields: dict[str, Any], listing: Listing, outside: set[str]) -> Profile:
    source, units = listing.source, spread_over([unit for unit in listing.units if unit.rows])
    types = {**source.columns, **source.partition_columns}
    lower = [name.lower() for name in types]
    # No job may read a column that Spark confuses with another one.
    confused = {name for name in types if lower.count(name.lower()) > 1 or name.lower().startswith(_OWN)}
    within = {name: type_within(types, way) for name, way in fields_within(types).items()}
    kinds = {name: kind for name, kind in {**types, **within}.items() if not kind.startswith("struct<")}
    names = [
        name for name, kind in kinds.items() if name not in outside | confused and not kind.startswith(UNSUPPORTED)
    ]
    sample = _sample(fields, source, units, names) if units and names else None
    columns = tuple(_column(name, kinds[name], sample, constant=name in source.partition_columns) for name in names)
    listed = sum(unit.rows or 0 for unit in listing.units)
    unread = [f"{name}: another column has this name but for case, or it is Spark's" for name in sorted(confused)]
    unread += [f"{name}: {kind}" for name, kind in kinds.items() if kind.startswith(UNSUPPORTED)]
    return Profile(fields, columns, 0 if sample is None else len(sample), listed, unread=tuple(unread))


def _sample(fields: dict[str, Any], source: Source, units: Sequence[Unit], names: Sequence[str]) -> pa.Table:
    if source.format == "parquet":  # pyarrow reads all stores, and needs no JVM
        with suppress(InputError):  # some columns are read right by Spark alone
            return _first_rows(source, units, names)
    spark = SparkSession.getActiveSession() or build_session("skewless init")
    spec = JobSpec.model_construct(input=Input.model_validate(fields), map=None)
    job = Job.model_construct(
        spec=spec, units=tuple(units), source=source, input_path=units[0].path, key_types={}, column_types={}
    )
    rows = source_rows(spark, job, range(len(units)), names, located=False).drop(ORIGIN).limit(SAMPLED_ROWS)
    return to_arrow(rows).rename_columns(list(names))


def _first_rows(source: Source, units: Sequence[Unit], names: Sequence[str]) -> pa.Table:
    ways = {name: fields_within(source.columns).get(name, (name,)) for name in names}
    roots = list(dict.fromkeys(way[0] for way in ways.values() if way[0] not in source.partition_columns))
    parts, rows = [], math.ceil(SAMPLED_ROWS / len(units))
    for unit in units:
        first = unit.span[0] if unit.span else 0
        group = unit.model_copy(update={"span": (first, first + 1)})
        for batch in islice(read_unit(group, source, roots), 1):
            columns = [
                pa.repeat(partition_value(unit, source, name), len(batch)) if name in source.partition_columns
                else pc.struct_field(batch.column(way[0]), list(way[1:])) if way[1:] else batch.column(name)
                for name, way in ways.items()
            ]  # fmt: skip
            parts.append(pa.table(columns, names=list(names)).slice(0, rows))
    return pa.concat_tables(parts, promote_options="permissive")


def _column(name: str, kind: str, sample: pa.Table | None, *, constant: bool) -> Column:
    if sample is None or kind.startswith(("array<", "map<")):
        return Column(name, kind, constant=constant)
    values = sample.column(name)
    counts = pc.value_counts(values.combine_chunks()).field("counts")
    heaviest = (pc.max(counts).as_py() or 0) / max(1, len(sample))
    return Column(name, kind, len(counts), heaviest, constant, values if kind == "string" and not constant else None)
